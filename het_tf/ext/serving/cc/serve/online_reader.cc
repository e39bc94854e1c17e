#include "het_tf/ext/serving/cc/serve/online_reader.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "het_tf/core/base/steady_seconds.h"
#include "het_tf/core/client/messages.h"
#include "het_tf/core/wire/layout.h"
#include "het_tf/ext/serving/cc/serve/online_exchange.h"

namespace het::serve {
namespace {

constexpr double kTellSeconds = 5;  // between two notices

// The rows that a lookup must ask for, each once, and the places that get the answers.
class Open {
 public:
  // `cached`: `out` has the row of `clock`.
  void Add(OnlineTable* table, Key key, uint64_t hash, uint32_t life, bool cached, het::Clock clock,
           float* out) {
    const auto [at, added] = found_[table].try_emplace(key, questions.size());
    if (added) questions.push_back({table, key, hash, life, cached, clock});
    // For a repeated id the row may have been evicted, or have arrived, in between.
    questions[at->second].check &= cached;
    places.push_back({at->second, out});
  }

  struct Place {
    size_t question;
    float* out;
  };
  Vector<Question> questions;
  Vector<Place> places;

 private:
  std::unordered_map<OnlineTable*, std::unordered_map<Key, size_t>> found_;
};

// Copies the store's answers into the caches and to the callers.
void TakeAnswers(const Open& open, const Vector<float>& values, OnlineCounters* counters) {
  for (const Question& q : open.questions) {
    if (q.answer == Question::kNoNews) {
      ++counters->confirmed;
      q.table->cache.Confirm(q.key, q.hash, q.life, q.when, q.clock);
    } else {
      ++(q.check ? counters->refreshed : counters->fetched);
      q.table->cache.Put(q.key, q.hash, q.life, q.when, q.clock, values.data() + q.value);
    }
  }
  for (const Open::Place& place : open.places) {
    const Question& q = open.questions[place.question];
    if (q.answer != Question::kRow) continue;  // the cached row was copied before
    std::copy_n(values.data() + q.value, q.table->schema().dim(), place.out);
  }
}

}  // namespace

// A transport for one exchange. After an exception it is not reused.
class OnlineReader::Lease {
 public:
  Lease(OnlineReader* reader, std::unique_ptr<Transport> transport)
      : reader_(reader), transport_(std::move(transport)) {}
  ~Lease() { reader_->Return(keep ? std::move(transport_) : nullptr); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Transport* get() const { return transport_.get(); }

  bool keep = false;

 private:
  OnlineReader* const reader_;
  std::unique_ptr<Transport> transport_;
};

OnlineReader::OnlineReader(std::unique_ptr<OnlineStore> store, const OnlineConfig& config, Notice notice,
                           Clock clock)
    : store_(std::move(store)),
      config_(config),
      notice_(std::move(notice)),
      clock_(clock ? std::move(clock) : Clock(SteadySeconds)),
      partitions_(store_->partitions()),
      told_(-std::numeric_limits<double>::infinity()) {}

OnlineReader::~OnlineReader() = default;

Result<OnlineTable*> OnlineReader::FindTable(const Schema& schema) {
  const TableSpec& wanted = schema->spec();
  std::lock_guard<std::mutex> lock(tables_mutex_);
  const auto known = tables_.find(wanted.name);
  if (known == tables_.end()) {
    auto found = store_->Find(wanted.name);
    if (found.status().code() == Code::kNotFound) {
      return FailedPrecondition(found.status().message() +
                                ". A lookup never makes a table: its rows would be initial ones, not trained "
                                "ones");
    }
    HET_ASSIGN_OR_RETURN(TableSpec spec, std::move(found));
    HET_ASSIGN_OR_RETURN(Schema there, TableSchema::Create(std::move(spec)));
    tables_[wanted.name] = std::make_unique<OnlineTable>(std::move(there), &partitions_, store_->hash_seed(),
                                                         config_.cache_rows);
  }
  OnlineTable* const table = tables_.at(wanted.name).get();
  if (SameValues(table->schema().spec(), wanted)) return table;
  return FailedPrecondition("table '" + wanted.name + "' at " + store_->Where() +
                            " is not the one this graph was made for\n  there: " + table->schema().ToJson() +
                            "\n  wanted: " + schema->ToJson() + "\nExport the model again");
}

Status OnlineReader::Lookup(Span<const OnlineRead> reads) {
  const double began = clock_();
  const double since = config_.max_lag ? began - *config_.max_lag : std::numeric_limits<double>::infinity();
  const Layout layout(partitions_.count(), store_->hash_seed());
  Open open;
  size_t fresh = 0, old = 0;
  for (const OnlineRead& read : reads) {
    OnlineTable* const table = read.table;
    const size_t dim = table->schema().dim();
    for (size_t i = 0; i < read.ids.size(); ++i) {
      const Key key = read.ids[i];
      float* out = read.out + i * dim;
      if (read.padding_id == key) {
        std::fill_n(out, dim, 0.0f);
        continue;
      }
      const uint64_t hash = layout.Hash(key);
      const uint32_t life = table->life(layout.Of(table->schema().id(), hash));
      het::Clock clock = 0;
      const OnlineCache::Found found = table->cache.Read(key, hash, life, since, out, &clock);
      if (found == OnlineCache::Found::kFresh) {
        ++fresh;
        continue;
      }
      const bool cached = found == OnlineCache::Found::kOld;
      open.Add(table, key, hash, life, cached, clock, out);
      old += cached;
    }
  }
  counters_.fresh += fresh;
  if (open.places.empty()) return Status();

  const size_t absent = open.places.size() - old;
  if (config_.stale_ok && absent == 0 && began < ask_again_) return Fallback(Status(), old, 0);
  auto taken = Take(began + config_.deadline);
  if (taken.status().code() == Code::kDeadlineExceeded) return Fallback(taken.status(), old, absent);
  if (!taken.ok()) return taken.status();
  Lease lease(this, std::move(taken.value()));
  OnlineExchange exchange(lease.get(), &partitions_, config_.pull_bound.value_or(0), config_.max_read_bytes,
                          clock_);
  const Status status = exchange.Run(&open.questions, began + config_.deadline);
  counters_.emptied += exchange.emptied();
  lease.keep = true;
  if (status.code() == Code::kDeadlineExceeded) return Fallback(status, old, absent);
  HET_RETURN_IF_ERROR(status);
  ask_again_ = 0;

  TakeAnswers(open, exchange.values(), &counters_);
  return Status();
}

// The store did not answer: reports the failure, or serves the `old` rows if no row is `absent`.
Status OnlineReader::Fallback(const Status& why, size_t old, size_t absent) {
  const double now = clock_();
  if (!why.ok()) {
    ++counters_.failures;
    ask_again_ = now + config_.deadline;
  }
  if (!config_.stale_ok) return why;
  if (absent > 0) {
    return Status(why.code(), why.message() + "; " + std::to_string(absent) +
                                  " rows of this call were never read, so there is nothing old to serve");
  }
  counters_.stale += old;
  double told = told_;
  if (notice_ && now - told >= kTellSeconds && told_.compare_exchange_strong(told, now)) {
    notice_("rows are served that may be older than allowed (stale_ok): " +
            (why.ok() ? "the store did not answer a moment ago" : why.message()));
  }
  return Status();
}

Result<std::unique_ptr<Transport>> OnlineReader::Take(double until) {
  std::unique_lock<std::mutex> lock(pool_mutex_);
  while (idle_.empty() && transports_ >= std::max<size_t>(1, config_.connections)) {
    const double left = until - clock_();
    if (left <= 0) {
      return Status(Code::kDeadlineExceeded, "a lookup waited for " + Seconds(config_.deadline) +
                                                 " for one of " + std::to_string(config_.connections) +
                                                 " connections to " + store_->Where() +
                                                 "; look at the servers, or allow more connections");
    }
    returned_.wait_for(lock, std::chrono::duration<double>(std::min(left, 1.0)));
  }
  if (!idle_.empty()) {
    std::unique_ptr<Transport> transport = std::move(idle_.back());
    idle_.pop_back();
    return transport;
  }
  ++transports_;
  lock.unlock();
  auto connected = store_->Connect();
  if (connected.ok()) return connected;
  Return(nullptr);
  if (connected.status().code() != Code::kUnavailable) return connected;
  return Status(Code::kDeadlineExceeded, connected.status().message());
}

// Returns the transport to the pool. Null: its connection is gone.
void OnlineReader::Return(std::unique_ptr<Transport> transport) {
  {
    std::lock_guard<std::mutex> lock(pool_mutex_);
    if (transport == nullptr) {
      --transports_;
    } else {
      idle_.push_back(std::move(transport));
    }
  }
  returned_.notify_one();
}

std::string OnlineReader::Stats() {
  nlohmann::json tables = nlohmann::json::object();
  std::lock_guard<std::mutex> lock(tables_mutex_);
  for (const auto& [name, table] : tables_) {
    tables[name] = {
        {"rows", table->cache.size()}, {"bytes", table->cache.bytes()}, {"evicted", table->cache.evicted()}};
  }
  return nlohmann::json({{"at", store_->Where()},
                         {"fresh", counters_.fresh.load()},
                         {"confirmed", counters_.confirmed.load()},
                         {"refreshed", counters_.refreshed.load()},
                         {"fetched", counters_.fetched.load()},
                         {"stale", counters_.stale.load()},
                         {"failures", counters_.failures.load()},
                         {"emptied", counters_.emptied.load()},
                         {"tables", tables}})
      .dump();
}

}  // namespace het::serve
