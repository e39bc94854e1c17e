// The tables of an engine by name.
//
// Concurrency: thread-safe. Who creates, drops or clears a table holds LockChanges() around
// everything that belongs to it, so that one such call goes on at a time; names are looked up
// meanwhile.
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

  // NotFound lists the tables there are.
  Result<TablePtr> Find(const std::string& name) const;
  std::vector<std::string> Names() const;
  // The table of this name, or null. AlreadyExists when it has another spec or other options; the
  // message shows both.
  Result<TablePtr> FindEqual(const TableSchema& schema, const TableOptions& options) const;

  void Add(const Schema& schema, const TableOptions& options);
  void Remove(const std::string& name);
  // Changes whenever a table is created or dropped: what was found before must be looked for again.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // Options of a cached table that may change while it is used.
  void SetWorkers(Table* table, uint32_t workers);

 private:
  const std::string name_space_;
  std::mutex changes_;
  mutable std::mutex mutex_;  // guards what follows, and the bounds in options of tables
  std::map<std::string, TablePtr> tables_;
  std::atomic<uint64_t> generation_{1};
};

}  // namespace het
