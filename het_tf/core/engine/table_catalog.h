// The tables of an engine by name.
//
// Concurrency: thread-safe. Calls that create, drop or clear a table hold LockChanges() throughout, so that
// one such call runs at a time; names can be looked up meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "het_tf/core/base/status.h"
#include "het_tf/core/plan/batch_call.h"

namespace het {

class TableCatalog {
 public:
  explicit TableCatalog(std::string name_space) : name_space_(std::move(name_space)) {}

  std::unique_lock<std::mutex> LockChanges() { return std::unique_lock<std::mutex>(changes_); }

  // NotFound lists the tables that exist.
  Result<TablePtr> Find(const std::string& name) const;
  std::vector<std::string> Names() const;
  // The table of this name, or null. AlreadyExists: its spec or options differ; the message shows both.
  Result<TablePtr> FindEqual(const TableSchema& schema, const TableOptions& options) const;

  void Add(const Schema& schema, const TableOptions& options);
  void Remove(const std::string& name);
  // Changes whenever a table is created or dropped: earlier results of Find are then invalid.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  const std::string name_space_;
  std::mutex changes_;
  mutable std::mutex mutex_;  // guards the members below
  std::map<std::string, TablePtr> tables_;
  std::atomic<uint64_t> generation_{1};
};

}  // namespace het
