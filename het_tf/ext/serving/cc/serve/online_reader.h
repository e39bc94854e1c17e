// Reading live tables from a serving process: an inference cache before a store that others train.
//
//   id ─► cache ─ fresh ─────────────────────────────────────────► value, no request
//             ├── old ────► check (key, clock) ─ no news ─► value, fresh again
//             └── absent ─► fetch (key)         └ news ───► the row comes back
//
// How old a value may be is bounded in one of two ways:
//   max_lag     seconds: a served value was the store's row at most max_lag before the call began. A row that
//               was confirmed within that time is served at once; an older one is checked by its clock, and
//               fetched only if it has changed.
//   pull_bound  ticks, as in training (I2): every row is checked at every read, and fetched when the store is
//               more than pull_bound ticks past it.
//
// When the store does not answer within `deadline`, the call fails. With stale_ok, cached rows are served
// instead, counted (`stale`) and reported by a notice, and the store is not contacted again for `deadline`
// seconds. A call that needs a row which was never read fails in any case.
//
// A reader never makes a table, partition or client at the store. A load or clear gives a table a new epoch,
// and a restart gives a partition a new incarnation: an answer with a new number invalidates cached rows.
//
// Concurrency: Lookup is thread-safe. Calls whose rows are fresh share only the cache's mutexes. Each call
// that needs the store takes one of `connections` transports; further calls wait for one. Two calls that miss
// the same row both ask for it.
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
#include "het_tf/core/wire/reply.h"
#include "het_tf/core/wire/transport.h"
#include "het_tf/ext/serving/cc/serve/online_cache.h"
#include "het_tf/ext/serving/cc/serve/online_table.h"

namespace het::serve {

struct OnlineConfig {
  std::optional<double> max_lag;               // seconds; set exactly one of max_lag and pull_bound
  std::optional<int64_t> pull_bound;           // ticks
  size_t cache_rows = CacheConfig().capacity;  // of each table
  bool stale_ok = false;
  double deadline = 2;                     // seconds that a call waits for the store
  size_t connections = 4;                  // calls that ask at once
  size_t max_read_bytes = kMostReadBytes;  // limit on the answer to one request
};

// Opens connections to the store that has the tables.
class OnlineStore {
 public:
  virtual ~OnlineStore() = default;
  virtual uint32_t partitions() const = 0;
  virtual uint64_t hash_seed() const = 0;
  virtual std::string Where() const = 0;  // for messages
  // Opens a transport for one caller. Thread-safe, as is Find.
  virtual Result<std::unique_ptr<Transport>> Connect() = 0;
  // Returns the table's spec at the store. NotFound lists the tables that exist.
  virtual Result<TableSpec> Find(const std::string& table) = 0;
};

struct OnlineRead {
  OnlineTable* table;  // from FindTable
  Span<const Key> ids;
  std::optional<Key> padding_id;  // reads as zeros
  float* out;                     // ids.size() rows
};

struct OnlineCounters {
  std::atomic<uint64_t> fresh{0};      // rows served without asking
  std::atomic<uint64_t> confirmed{0};  // old rows that a check found unchanged
  std::atomic<uint64_t> refreshed{0};  // old rows that had changed
  std::atomic<uint64_t> fetched{0};    // rows that were not in the cache
  std::atomic<uint64_t> stale{0};      // rows served past the bound: the store did not answer
  std::atomic<uint64_t> failures{0};   // exchanges that the store did not answer in time
  std::atomic<uint64_t> emptied{0};    // times that a new epoch or incarnation was seen
};

class OnlineReader {
 public:
  using Notice = std::function<void(const std::string&)>;
  using Clock = std::function<double()>;  // seconds from any origin

  OnlineReader(std::unique_ptr<OnlineStore> store, const OnlineConfig& config, Notice notice = nullptr,
               Clock clock = nullptr);
  ~OnlineReader();

  const OnlineConfig& config() const { return config_; }
  // Returns the table, which lives as long as the reader; the first call asks the store. FailedPrecondition:
  // the store does not have it, or its rows mean something else (dim, initializer, seed).
  Result<OnlineTable*> FindTable(const Schema& schema);
  // DeadlineExceeded: the store did not answer in time. FailedPrecondition: it refuses, and will until
  // somebody intervenes. (Never Unavailable, which TensorFlow's functions turn into Internal.) Throws
  // std::bad_alloc.
  Status Lookup(Span<const OnlineRead> reads);

  const OnlineCounters& counters() const { return counters_; }
  // Returns one JSON object: the counters, and each table's rows and bytes in the cache.
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

  std::atomic<double> ask_again_{0};  // stale_ok: no request before this, after a failure
  std::atomic<double> told_{0};       // time of the last notice
};

}  // namespace het::serve
