// What the oracle knows of changes other than pushes: operators' (operator.h), restarts from older states,
// and updates that clients discard because their table was replaced.
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/wire/layout.h"
#include "tests/testing/partition_bytes.h"
#include "tests/testing/world/world.h"

namespace het::testing {

uint32_t World::PartitionOfKey(const TableKey& key) {
  return Layout(service_.id(0)).Of(key.first, HashKey(key.second, service_.hash_seed()));
}

std::map<TableKey, int64_t> World::Pending(size_t w) {
  std::map<TableKey, int64_t> pending;
  // Reading a row of a device first sends what the last step has left, so it comes before frames are counted.
  if (device(w) != nullptr) {
    for (auto& [key, issued] : issued_) pending[key] += device(w)->Find(key.first, key.second).ticks;
  }
  for (const Schema& schema : Tables(w)) {
    TableCache* cache = client(w).cache(schema->id());
    cache->lines().ForEach([&](uint32_t line) {
      pending[{schema->id(), cache->lines().meta(line).key}] += cache->lines().pending(line);
    });
    for (const WriteBackQueue::Queued& q : cache->unsent().queue().entries()) {
      pending[{schema->id(), q.key}] += q.ticks;
    }
  }
  for (uint32_t p = 0; p < service_.partitions(); ++p) {
    const Session& session = client(w).session(p);
    uint64_t last = service_.WithPartition(
        p, [&](Partition& partition) { return partition.clients().LastSeq(session.client()); });
    // A load forgets clients; what they know to be applied they never send again.
    if (replaced_ && last == 0) last = session.log().applied();
    for (const PushFrame& frame : session.log().frames()) {
      if (frame.seq <= last) continue;
      for (const TablePush& push : frame.tables) {
        for (size_t i = 0; i < push.keys.size(); ++i) {
          pending[{push.schema->id(), push.keys[i]}] += push.ticks[i];
        }
      }
    }
  }
  return pending;
}

World::PendingOfAll World::PendingTicks() {
  PendingOfAll of_all;
  for (size_t w = 0; w < workers_.size(); ++w) of_all.push_back(Pending(w));
  return of_all;
}

std::vector<int64_t> World::Found(const TableKey& key, const PendingOfAll& pending) {
  const std::vector<float> row = ServerRow(key);
  std::vector<int64_t> found;
  for (size_t v = 0; v < workers_.size(); ++v) {
    const auto of_worker = pending[v].find(key);
    found.push_back(static_cast<int64_t>(kInitial - row[v]) +
                    (of_worker == pending[v].end() ? 0 : of_worker->second));
  }
  return found;
}

int64_t World::Issued(size_t w, const TableKey& key) {
  const auto it = issued_.find(key);
  if (it == issued_.end()) return 0;
  const auto operated = operated_.find(key);
  const float removed = operated == operated_.end() ? 0 : operated->second.row[w];
  return static_cast<int64_t>(it->second[w]) - static_cast<int64_t>(removed);
}

void World::Know(const TableKey& key) {
  issued_[key].resize(config_.workers);
  sums_[key].resize(SchemaOf(key.first)->dim());
}

std::map<TableKey, World::State> World::States() {
  std::map<TableKey, State> of;
  const PendingOfAll pending = PendingTicks();
  for (const auto& [key, issued] : issued_) {
    int64_t age = ServerAge(key);
    for (const auto& of_worker : pending) {
      const auto ticks = of_worker.find(key);
      if (ticks != of_worker.end()) age += ticks->second;
    }
    of[key] = {Found(key, pending), ServerRow(key), age};
  }
  return of;
}

void World::NoteChange(const TableKey& key, const State& was, const State& now) {
  changed_[key] = changes_;
  Operated& operated = operated_[key];
  operated.row.resize(now.row.size());
  for (size_t i = 0; i < now.row.size(); ++i) {
    const bool of_worker = i < workers_.size();
    operated.row[i] += of_worker ? static_cast<float>(was.found[i] - now.found[i]) : now.row[i] - was.row[i];
    if (of_worker && static_cast<float>(was.found[i] - now.found[i]) != now.row[i] - was.row[i]) {
      inexact_.insert(key);
    }
  }
  operated.age += now.age - was.age;
}

void World::HandleAndSweep(const std::function<void()>& handle) {
  const std::map<TableKey, State> before = States();
  handle();
  ++changes_;
  for (const auto& [key, now] : States()) {
    // A push leaves all ticks where they are to be found; a row that lacks some must be gone.
    if (now == before.at(key) || ServerClock(key) != 0) continue;
    NoteChange(key, before.at(key), now);
    inexact_.insert(key);  // the push may have changed the row before it went
  }
}

void World::Operate(const std::function<void()>& change, bool replaces) {
  NoteDiscards();
  replaced_ = replaced_ || replaces;
  const std::map<TableKey, State> before = States();
  std::map<std::pair<size_t, uint32_t>, uint64_t> applied;
  const auto last_seq = [this](size_t w, uint32_t p) {
    return service_.WithPartition(
        p, [&](Partition& partition) { return partition.clients().LastSeq(client(w).session(p).client()); });
  };
  for (size_t w = 0; w < workers_.size(); ++w) {
    for (uint32_t p = 0; p < service_.partitions(); ++p) applied[{w, p}] = last_seq(w, p);
  }
  change();
  ++changes_;
  // A client that the store has forgotten sends again what it does not know to be applied, except if an
  // answer from before is still to come.
  for (const auto& [of, last] : applied) {
    if (last_seq(of.first, of.second) == last) continue;
    const PushLog& log = client(of.first).session(of.second).log();
    for (const PushFrame& frame : log.frames()) {
      if (frame.seq <= log.applied() || frame.seq > last) continue;
      for (const TablePush& push : frame.tables) {
        for (size_t i = 0; i < push.keys.size(); ++i) {
          unsure_[{of.first, {push.schema->id(), push.keys[i]}}] += push.ticks[i];
        }
      }
    }
  }
  for (const auto& [key, now] : States()) {
    if (!(now == before.at(key))) NoteChange(key, before.at(key), now);
  }
}

void World::NoteDiscards() {
  if (!replaced_) return;
  for (size_t w = 0; w < workers_.size(); ++w) {
    std::map<TableKey, int64_t> pending = Pending(w);  // a device may send, and learn, something
    for (const Schema& schema : Tables(w)) {
      const uint64_t total = client(w).Stats(schema->id()).discarded_ticks;
      const auto reported = static_cast<int64_t>(total - std::exchange(discarded_[{w, schema->id()}], total));
      int64_t& ahead = reported_[{w, schema->id()}];
      if (reported == 0 && ahead == 0 && unsure_.empty()) continue;
      ++changes_;
      int64_t gone = 0, unsure = 0;
      for (auto& [key, issued] : issued_) {
        if (key.first != schema->id()) continue;
        const auto left = static_cast<int64_t>(kInitial - ServerRow(key)[w]) + pending[key];
        const int64_t of_key = Issued(w, key) - left;
        if (of_key <= 0) continue;
        gone += of_key;
        unsure += std::min(of_key, unsure_[{w, key}]);
        unsure_[{w, key}] -= std::min(of_key, unsure_[{w, key}]);
        issued[w] -= static_cast<uint64_t>(of_key);
        sums_[key][w] -= static_cast<float>(of_key);
        inexact_.insert(key);
        changed_[key] = changes_;
      }
      // A device reports before it drops. A client that keeps frames also reports those that the store had
      // applied, and the load replaced.
      ahead += reported - gone;
      if (ahead < 0) ahead += std::min(unsure, -ahead);
      if (ahead == 0 || (ahead > 0 && (keeps() || device(w) != nullptr))) continue;
      errors_.push_back("worker " + std::to_string(w) + " reports " + std::to_string(reported) +
                        " discarded ticks of table " + schema->spec().name + ", " + std::to_string(gone) +
                        " are missing");
    }
  }
}

bool World::Settled(size_t w, const TableKey& key, uint64_t changes) {
  for (const auto& [step, begun] : under_way_[w]) changes = std::min(changes, begun);
  const auto changed = changed_.find(key);
  if (changed == changed_.end()) return true;
  return config_.cache.pull_bound != kUnbounded && changed->second <= changes;
}

World::Saved World::Snapshot(uint32_t p) {
  Saved saved{BytesOf(&service_, p), {}};
  for (const auto& [key, operated] : operated_) {
    if (PartitionOfKey(key) == p) saved.operated[key] = operated;
  }
  return saved;
}

void World::Restart(uint32_t p, const Saved& state, bool close) {
  ++restarts_;
  lossy_ = lossy_ || state.bytes != BytesOf(&service_, p);
  Revive(&service_, p, state.bytes);
  LimitSubscriptions(p);
  ++changes_;
  std::map<TableKey, Operated> now = state.operated;
  for (auto it = operated_.begin(); it != operated_.end();) {
    if (PartitionOfKey(it->first) != p) {
      ++it;
      continue;
    }
    if (now.count(it->first) == 0 || !(now.at(it->first) == it->second)) changed_[it->first] = changes_;
    it = operated_.erase(it);
  }
  operated_.insert(now.begin(), now.end());
  if (!close) return;
  for (auto& worker : workers_) worker.transport->PartitionMoved(p);
}

}  // namespace het::testing
