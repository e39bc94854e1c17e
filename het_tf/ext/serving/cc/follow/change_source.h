// Asks the partitions of a store for their changes (core/store/changes.h). A partition has at most one
// question in flight; it gets exactly one answer, in any order among partitions.
//
// No call waits: a server that does not answer must not hold up the partitions of other servers.
#pragma once

#include <poll.h>

#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/row/schema.h"
#include "het_tf/core/store/changes.h"

namespace het::follow {

struct ChangeAnswer {
  uint32_t partition = 0;
  Status status;                                 // an error: ask again after a pause
  ChangesPage page;                              // of AskPage
  std::vector<std::optional<TableSpec>> tables;  // of AskTables, in its order; absent: there is no such table
};

class ChangeSource {
 public:
  virtual ~ChangeSource() = default;

  virtual uint32_t partitions() const = 0;
  virtual uint64_t hash_seed() const = 0;
  // Returns the server of a partition, for messages.
  virtual std::string Where(uint32_t partition) const = 0;

  virtual void AskPage(uint32_t partition, const ChangesRequest& request) = 0;
  virtual void AskTables(uint32_t partition, const std::vector<std::string>& names) = 0;
  // Appends the answers that have come.
  virtual void Collect(std::vector<ChangeAnswer>* answers) = 0;
  // Appends what to poll until Collect has something to do. Call Collect once a second in any case: it finds
  // servers that are silent.
  virtual void Descriptors(std::vector<pollfd>* descriptors) = 0;
};

}  // namespace het::follow
