// Reading live tables from a serving process: an inference cache before a store that others train.
//
//   id ─► cache ─ fresh ─────────────────────────────────────────► value, nobody is asked
//             ├── old ────► check (key, clock) ─ no news ─► value, fresh again
//             └── absent ─► fetch (key)         └ news ───► the row comes back
//
// How old a value may be is bounded in one of two ways:
//   max_lag     seconds: what is served was the store's row at most so long before the call began. A row that
//               was confirmed within that time is served without asking; an older one is checked with its
//               clock, and comes back only if it has changed.
//   pull_bound  ticks, as in training (I2): every row is checked at every read, and comes back when the store
//               is more than so many ticks past it.
//
// When the store does not answer within `deadline`, the call fails; or, with stale_ok, rows that are cached
// are served as they are, counted (`stale`) and reported by a notice, and the store is left alone for as long
// as the deadline before it is tried again. A row that was never read cannot be served: such a call fails in
// any case.
//
// The store is only read: no table, partition or client is ever made there. A table that was loaded or
// cleared has another epoch, and a partition that came to life again another incarnation: what is cached of
// it is forgotten when the first answer tells.
//
// Concurrency: Lookup is thread-safe. Calls whose rows are fresh meet at the cache's mutexes alone. Calls
// that ask use one of `connections` transports each, so that many are on their way at once; further ones wait
// for a transport. Two calls that miss the same row both ask for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/cache/cache_config.h"
#include "het_tf/core/row/schema.h"
#include "het_tf/core/serve/online_cache.h"
#include "het_tf/core/serve/online_table.h"
#include "het_tf/core/wire/reply.h"
#include "het_tf/core/wire/transport.h"

namespace het::serve {

struct OnlineConfig {
  std::optional<double> max_lag;               // seconds; exactly one of the two
  std::optional<int64_t> pull_bound;           // ticks
  size_t cache_rows = CacheConfig().capacity;  // of each table
  bool stale_ok = false;
  double deadline = 2;                     // seconds that a call waits for the store
  size_t connections = 4;                  // calls that ask at once
  size_t max_read_bytes = kMostReadBytes;  // that the answer to one request may take
};

// Where the tables are, for reading.
class OnlineStore {
 public:
  virtual ~OnlineStore() = default;
  virtual uint32_t partitions() const = 0;
  virtual uint64_t hash_seed() const = 0;
  virtual std::string Where() const = 0;  // for people
  // A transport of its own for each caller. Thread-safe, as the next one.
  virtual Result<std::unique_ptr<Transport>> Connect() = 0;
  // The table as the store has it. NotFound lists those there are.
  virtual Result<TableSpec> Find(const std::string& table) = 0;
};

struct OnlineRead {
  OnlineTable* table;  // of FindTable
  Span<const Key> ids;
  std::optional<Key> padding_id;  // reads zeros
  float* out;                     // ids.size() rows
};

struct OnlineCounters {
  std::atomic<uint64_t> fresh{0};      // rows served without asking
  std::atomic<uint64_t> confirmed{0};  // old ones, asked for, that had not changed
  std::atomic<uint64_t> refreshed{0};  // old ones that had
  std::atomic<uint64_t> fetched{0};    // rows that were not in the cache
  std::atomic<uint64_t> stale{0};      // rows served past the bound, since the store did not answer
  std::atomic<uint64_t> failures{0};   // exchanges that the store did not answer in time
  std::atomic<uint64_t> emptied{0};    // that a table or a partition was found to be another
};

class OnlineReader {
 public:
  using Notice = std::function<void(const std::string&)>;
  using Clock = std::function<double()>;  // seconds; its zero does not matter

  OnlineReader(std::unique_ptr<OnlineStore> store, const OnlineConfig& config, Notice notice = nullptr,
               Clock clock = nullptr);
  ~OnlineReader();

  const OnlineConfig& config() const { return config_; }
  // The table, which lives as long as the reader. The store is asked the first time. FailedPrecondition: it
  // has no such table, or one whose rows would mean something else (dim, initializer, seed).
  Result<OnlineTable*> FindTable(const Schema& schema);
  // DeadlineExceeded: the store did not answer in time. FailedPrecondition: it refuses, until somebody
  // changes something. (Never Unavailable, which TensorFlow's functions turn into Internal.) Throws
  // std::bad_alloc.
  Status Lookup(Span<const OnlineRead> reads);

  const OnlineCounters& counters() const { return counters_; }
  // One JSON object: counters, and of each table rows and bytes in the cache.
  std::string Stats();

 private:
  class Lease;

  Result<std::unique_ptr<Transport>> Take(double until);
  void Return(std::unique_ptr<Transport> transport);
  Status Fallback(const Status& why, size_t old, size_t absent);

  const std::unique_ptr<OnlineStore> store_;
  const OnlineConfig config_;
  const Notice notice_;
  const Clock clock_;
  OnlineCounters counters_;
  Partitions partitions_;

  std::mutex tables_mutex_;
  std::map<std::string, std::unique_ptr<OnlineTable>> tables_;

  std::mutex pool_mutex_;
  std::condition_variable returned_;
  std::vector<std::unique_ptr<Transport>> idle_;
  size_t transports_ = 0;

  std::atomic<double> ask_again_{0};  // stale_ok: not before, after a failure
  std::atomic<double> told_{0};       // when the last notice was given
};

}  // namespace het::serve
