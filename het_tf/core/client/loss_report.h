// Updates of this worker that will not be in any row, and that nobody has asked to drop. What comes within a
// second is one notice.
//
// 1. A partition whose new incarnation has a last_seq below what was acknowledged has lost pushes:
//    those that are kept are sent again (`repaired`), the others are counted (`lost_pushes`).
// 2. A table that others loaded, cleared or dropped takes the updates along that were not applied
//    (`discarded_ticks`).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/client_config.h"
#include "het_tf/core/wire/transport.h"

namespace het {

class LossReport {
 public:
  LossReport(Transport* transport, const ClientConfig* config, const CachedTables* tables)
      : transport_(transport), config_(config), tables_(tables) {}

  void OnLost(uint32_t partition, uint64_t lost, uint64_t repaired);
  void OnDiscarded(const std::string& table, uint64_t updates);
  // Reports all losses once a second has passed since the first one, or at once if `now`.
  void Tell(bool now);
  bool any() const { return !losses_.partitions.empty() || !losses_.discarded.empty(); }
  // Seconds until then.
  double Due() const;

 private:
  struct Losses {
    double since = 0;
    uint64_t lost = 0;
    uint64_t repaired = 0;
    std::vector<uint32_t> partitions;           // that lost pushes
    std::map<std::string, uint64_t> discarded;  // by table
  };

  void Note();
  void TellLost(const Losses& losses) const;

  Transport* const transport_;
  const ClientConfig* const config_;
  const CachedTables* const tables_;
  Losses losses_;
};

}  // namespace het
