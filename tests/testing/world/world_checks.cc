// The oracle's counts of ticks, and its checks of I1-I5.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/testing/world/world.h"

namespace het::testing {

std::string World::FirstError() const {
  return errors_.empty() ? "" : errors_[0] + "\n  in a world of " + config_.ToString();
}

void World::CheckConservation() {
  if (!keeps() && lossy_) return;
  NoteDiscards();
  const PendingOfAll pending = PendingTicks();
  for (auto& [key, issued] : issued_) {
    const auto wrong = [&](const std::string& of, int64_t expected, int64_t found) {
      Error(
          "I5: " + std::to_string(expected) + " ticks" + of + " issued, " + std::to_string(found) + " found",
          0, key);
    };
    int64_t found = ServerAge(key);
    for (const auto& of_worker : pending) {
      const auto ticks = of_worker.find(key);
      if (ticks != of_worker.end()) found += ticks->second;
    }
    const auto operated = operated_.find(key);
    int64_t ticks = operated == operated_.end() ? 0 : operated->second.age;
    for (uint64_t n : issued) ticks += static_cast<int64_t>(n);
    if (found != ticks) wrong("", ticks, found);
    if (!counting() || SchemaOf(key.first)->dim() <= config_.workers) continue;
    const std::vector<int64_t> by_worker = Found(key, pending);
    for (size_t v = 0; v < workers_.size(); ++v) {
      if (by_worker[v] != Issued(v, key)) wrong(" by " + std::to_string(v), Issued(v, key), by_worker[v]);
    }
  }
}

void World::CheckCounters() {
  for (size_t w = 0; w < workers_.size(); ++w) {
    for (const Schema& schema : Tables(w)) {
      const Counters& counted = client(w).Stats(schema->id());
      const auto check = [&](const char* what, uint64_t counter, uint64_t expected) {
        if (counter == expected) return;
        errors_.push_back("worker " + std::to_string(w) + " counts " + std::to_string(counter) + " " + what +
                          " of table " + schema->spec().name + ", not " + std::to_string(expected));
      };
      uint64_t ticks = 0;
      for (auto& [key, of_workers] : ticked_) {
        if (key.first == schema->id() && of_workers.count(w) != 0) ticks += of_workers.at(w).size();
      }
      check("ticks", counted.ticks, ticks);
      // A gradient reads rows that have left, or are not to be trusted; so does an owner of sums.
      const bool stay = process(w) == nullptr && !config_.early && config_.cache.capacity >= 1000 &&
                        config_.cache.layer == 0 && config_.operators == Operators::kNone;
      if (stay && !config_.failovers) check("reads", counted.reads, read_[{w, schema->id()}]);
      const FaultyTransport::Sent& sent = transport(w).sent[schema->id()];
      check("requests", counted.requests, sent.requests);
      check("checks", counted.checks, sent.checks);
      if (replaced_ || config_.failovers) continue;  // clients begin anew, and discard
      check("resends", counted.resends, sent.resends);
      check("pushed rows", counted.bound_push + counted.age_push + counted.evict_push, sent.pushed);
    }
  }
}

void World::CheckAges(size_t w) {
  const double now = transport(w).Now();
  const auto check = [&](const TableKey& key, uint32_t ticks) {
    const std::vector<double>& when = ticked_[key][w];
    if (ticks == 0 || when[when.size() - ticks] + *config_.cache.push_max_age > now) return;
    Error("a tick of " + std::to_string(when[when.size() - ticks]) + " is unsent at " + std::to_string(now),
          w, key);
  };
  for (const Schema& schema : schemas_) {
    const TableCache& cache = *client(w).cache(schema->id());
    cache.lines().ForEach([&](uint32_t line) {
      check({schema->id(), cache.lines().meta(line).key}, cache.lines().pending(line));
    });
    for (const WriteBackQueue::Queued& q : cache.unsent().queue().entries()) {
      check({schema->id(), q.key}, q.ticks);
    }
  }
}

void World::CheckDrained() {
  for (auto& [key, issued] : issued_) {
    static const Operated kNothing;
    const auto found = operated_.find(key);
    const Operated& operated = found == operated_.end() ? kNothing : found->second;
    int64_t ticks = operated.age;
    for (uint64_t n : issued) ticks += static_cast<int64_t>(n);
    if (ServerAge(key) != ticks) {
      Error("drained: " + std::to_string(ticks) + " ticks issued, age " + std::to_string(ServerAge(key)), 0,
            key);
    }
    const std::vector<float> row = ServerRow(key);
    if (counting()) {
      const std::vector<float>& sum = sums_[key];
      for (size_t i = 0; i < (inexact_.count(key) == 0 ? sum.size() : config_.workers); ++i) {
        const float changed = operated.row.empty() ? 0 : operated.row[i];
        if (row[i] != kInitial - sum[i] + changed) Error("drained: value " + std::to_string(row[i]), 0, key);
      }
    } else if (config_.workers == 1) {
      Compare("drained", key, row.data(), config_.tolerance);
    }
  }
}

void World::CheckRead(size_t w, TestStep* step) {
  for (auto& [where, p] : step->parts()) {
    for (size_t u = 0; u < p.keys.size(); ++u) CheckValue(w, {p.table, p.keys[u]}, p.values[u], *step);
  }
}

void World::Error(const std::string& what, size_t w, const TableKey& key) {
  errors_.push_back(what + " (worker " + std::to_string(w) + ", table " + SchemaOf(key.first)->spec().name +
                    ", key " + std::to_string(key.second) + ")");
}

void World::Issue(size_t w, const TableKey& key, const std::vector<float>& g) {
  auto& issued = issued_[key];
  issued.resize(config_.workers);
  ++issued[w];
  ticked_[key][w].push_back(transport(w).Now());
  auto& sum = sums_[key];
  sum.resize(g.size());
  for (size_t i = 0; i < g.size(); ++i) sum[i] += g[i];
  if (counting() || config_.workers > 1) return;
  const TableSchema& schema = *SchemaOf(key.first);
  std::vector<float> used = g;
  schema.Tick(learning_rate(), used.data(), issued[w] - 1, Mirror(key), nullptr);
}

float* World::Mirror(const TableKey& key) {
  std::vector<float>& row = mirror_[key];
  if (row.empty()) {
    row.resize(SchemaOf(key.first)->row_floats());
    SchemaOf(key.first)->InitRow(key.second, row.data());
  }
  return row.data();
}

void World::Compare(const char* what, const TableKey& key, const float* value, float tolerance) {
  const float* expected = Mirror(key);
  for (uint32_t i = 0; i < SchemaOf(key.first)->dim(); ++i) {
    if (std::abs(value[i] - expected[i]) <= tolerance * (1 + std::abs(expected[i]))) continue;
    Error(std::string(what) + ": " + std::to_string(value[i]) + ", one process has " +
              std::to_string(expected[i]),
          0, key);
    return;
  }
}

TestStep::Begin World::Now(const TableKey& key) {
  TestStep::Begin now;
  now.server = ServerAge(key);
  now.row = ServerRow(key);
  now.restarts = restarts_;
  now.changes = changes_;
  for (uint32_t v = 0; v < config_.workers; ++v) {
    now.issued.push_back(Issued(v, key));
    now.held_back.push_back(HeldBack(v, key));
  }
  return now;
}

int64_t World::HeldBack(size_t w, const TableKey& key) {
  const auto held_back = held_back_[key].find(w);
  return held_back == held_back_[key].end() ? config_.cache.push_bound.most : held_back->second;
}

void World::NoteBegin(TestStep* step) {
  for (auto& [where, p] : step->parts()) {
    for (Key key : p.keys) step->begin[{p.table, key}] = Now({p.table, key});
  }
}

void World::BeginTraining(size_t w, TestStep* step) {
  for (auto& [where, p] : step->parts()) read_[{w, p.table}] += p.keys.size();
  const Bound& pull = config_.cache.pull_bound;
  const bool notified = config_.cache.checks != Checks::kAsked;
  if (!notified || pull.most == 0 || pull == kUnbounded) return;
  std::set<TableOfWorker> tables;
  for (auto& [where, p] : step->parts()) {
    const TableOfWorker table{w, p.table};
    tables.insert(table);
    if (before_.count(table) == 0) continue;  // the first read counts from itself
    for (Key key : p.keys) step->begin[{p.table, key}] = Before(table, key);
  }
  for (const TableOfWorker& table : tables) {
    std::map<Key, TestStep::Begin>& rows = before_[table];
    rows.clear();
    before_changes_[table] = changes_;
    for (auto& [key, issued] : issued_) {
      if (key.first == table.second) rows.emplace(key.second, Now(key));
    }
  }
}

TestStep::Begin World::Before(const TableOfWorker& table, Key key) {
  const std::map<Key, TestStep::Begin>& rows = before_[table];
  const auto known = rows.find(key);
  if (known != rows.end()) return known->second;
  TestStep::Begin none;
  none.server = 0;
  none.changes = before_changes_[table];
  none.row.resize(SchemaOf(table.second)->row_floats());
  none.issued.resize(config_.workers);
  none.held_back.resize(config_.workers);
  SchemaOf(table.second)->InitRow(key, none.row.data());
  return none;
}

void World::CheckValue(size_t w, const TableKey& key, const float* value, const TestStep& step) {
  const auto found = step.begin.find(key);
  const TestStep::Begin* begin = found == step.begin.end() ? nullptr : &found->second;
  // A training read's row stays in its line and is written to; an inference's row is a copy.
  const bool copied = begin != nullptr && step.token == 0;
  if (!counting()) {
    if (config_.workers == 1 && !copied) {
      Compare("I4", key, value, std::max(config_.tolerance, config_.read_tolerance));
    }
    return;
  }
  if (!keeps() && lossy_) return;
  TableCache* cache = client(w).cache(key.first);
  if (cache->schema()->dim() <= config_.workers) return;
  const bool settled = Settled(w, key, begin == nullptr ? step.changes : begin->changes);
  const std::vector<float> row_now = ServerRow(key);
  int64_t contained = 0;
  int64_t unseen = 0;
  int64_t lacking = 0;  // foreign ticks of the store that the row lacks
  for (uint32_t v = 0; v < config_.workers; ++v) {
    const auto count = static_cast<int64_t>(kInitial - value[v]);
    contained += count;
    if (!settled) continue;
    const int64_t issued = Issued(v, key);
    const int64_t before = begin == nullptr ? issued : begin->issued[v];
    const int64_t least = copied ? before : issued;
    if (v == w && (count > issued || count < least)) {
      Error("I4: sees " + std::to_string(count) + " of its own " + std::to_string(issued) + " ticks", w, key);
    }
    if (count < 0 || count > issued) {
      Error("sees " + std::to_string(count) + " ticks of " + std::to_string(v) + ", who made " +
                std::to_string(issued),
            w, key);
    }
    if (v == w) continue;
    unseen += std::max<int64_t>(before - count, 0);
    const float had = begin == nullptr ? row_now[v] : std::max(begin->row[v], row_now[v]);
    lacking += std::max<int64_t>(static_cast<int64_t>(kInitial - had) - count, 0);
  }
  if (device(w) != nullptr) {
    std::vector<float> x;
    const HetDevRowState row = device(w)->Find(key.first, key.second, &x);
    if (row.found && !row.invalid && !std::equal(x.begin(), x.end(), value)) {
      Error("the device's row is another one", w, key);
    }
    if (row.found && !row.invalid && AgeOf(row.base) + row.ticks != contained) {
      Error("base " + std::to_string(row.base) + " + " + std::to_string(row.ticks) +
                ", but the row contains " + std::to_string(contained) + " ticks",
            w, key);
    }
  }
  const uint32_t line = cache->lines().Find(key.second);
  if (line != kNoRow && cache->lines().data(line) == value && !cache->marks().invalid(line)) {
    if (AgeOf(cache->lines().base(line)) + cache->lines().pending(line) != contained) {
      Error("base " + std::to_string(cache->lines().base(line)) + " + pending " +
                std::to_string(cache->lines().pending(line)) + ", but the row contains " +
                std::to_string(contained) + " ticks",
            w, key);
    }
  }
  if (!settled) return;
  // The store checked with the bound of its clock at some time since then; bounds grow with clocks.
  const Clock newest = std::max(ServerAge(key), begin == nullptr ? 0 : begin->server);
  const int64_t pull = config_.cache.pull_bound.Of(newest);
  const Bound push = config_.cache.push_bound;
  // A read was checked after it began; a failover may have set the store back since.
  const int64_t server = begin == nullptr ? ServerAge(key) : std::min(begin->server, ServerAge(key));
  // Notified checks count from the lookup before: a restart may have removed ticks that the store had then
  // until they were sent again, and the copy may have been checked in between.
  const bool notified = config_.cache.checks != Checks::kAsked;
  const bool bounded = pull != kUnbounded && !(notified && begin != nullptr && begin->restarts != restarts_);
  if (bounded && server - contained > pull) {
    Error("I2: server at " + std::to_string(server) + ", row at " + std::to_string(contained), w, key);
  }
  // A base from before a failover may equal the clock but count other ticks.
  if (bounded && lacking > pull) {
    Error("I2: the row lacks " + std::to_string(lacking) + " foreign ticks that the server had", w, key);
  }
  if (pull == kUnbounded || push == kUnbounded || lossy_ || blocked_) return;
  int64_t most = pull;
  for (size_t v = 0; v < config_.workers; ++v) {
    // An operator may have replaced an older row by a younger one since it began.
    if (v != w) most += std::max(HeldBack(v, key), begin == nullptr ? 0 : begin->held_back[v]) + 1;
  }
  if (unseen > most) Error("I3: " + std::to_string(unseen) + " foreign ticks unseen", w, key);
}

void World::CheckLockStep(size_t w, TestStep* step, bool exact) {
  const Bound &pull = config_.cache.pull_bound, &push = config_.cache.push_bound;
  const bool bounded = pull != kUnbounded && push != kUnbounded && !lossy_ && !blocked_;
  // A read that began early lacks the ticks of a step more, and so does one that is notified.
  const int64_t most = exact ? 0 : pull.most + (config_.workers - 1) * (push.most + 3);
  NoteDiscards();
  // A copy may be of the table's lookups before: of the one that is notified, and the one before that, since
  // both begin early. Eight that nobody has planned may come between the begin of a lookup and itself.
  constexpr size_t kBefore = 3 + 8;
  std::map<uint64_t, uint64_t> known;  // by table
  for (auto& [where, p] : step->parts()) {
    std::deque<uint64_t>& reads = reads_at_[{w, p.table}];
    const bool asks = step->token == 0 || (exact && !config_.failovers);
    known[p.table] = asks ? changes_ : reads.size() < kBefore ? 0 : reads.front();
  }
  for (auto& [table, changes] : known) {
    if (step->token == 0) break;
    std::deque<uint64_t>& reads = reads_at_[{w, table}];
    reads.push_back(changes_);
    if (reads.size() > kBefore) reads.pop_front();
  }
  if (!keeps() && lossy_) return;
  for (auto& [where, p] : step->parts()) {
    for (size_t u = 0; u < p.keys.size(); ++u) {
      const TableKey key{p.table, p.keys[u]};
      if (!Settled(w, key, known[p.table])) continue;
      int64_t unseen = 0;
      for (uint32_t v = 0; v < config_.workers; ++v) {
        const auto count = static_cast<int64_t>(kInitial - p.values[u][v]);
        const int64_t issued = Issued(v, key);
        if (count < 0 || count > issued || (v == w && count != issued)) {
          Error("sees " + std::to_string(count) + " ticks of " + std::to_string(v) + ", who made " +
                    std::to_string(issued),
                w, key);
        }
        unseen += issued - count;
      }
      if (bounded && unseen > most) {
        Error(std::to_string(unseen) + " ticks of others unseen, at most " + std::to_string(most), w, key);
      }
    }
  }
}

void World::CheckWrite(size_t w, TestStep* step, const std::map<TableKey, Clock>& before) {
  if (config_.cache.push_bound == kUnbounded) return;
  std::vector<uint64_t> applied;
  for (uint32_t p = 0; p < config_.partitions; ++p) applied.push_back(client(w).session(p).log().applied());
  for (auto& [where, p] : step->parts()) {
    for (size_t u = 0; u < p.keys.size(); ++u) {
      if (!p.touched[u]) continue;
      const TableKey key = {p.table, p.keys[u]};
      const uint64_t unapplied = UnappliedTicks(w, key);
      // A look at a device sends what the step has left, and may learn that the store has lost pushes: the
      // next step waits for them.
      const uint32_t of = Layout(service_.id(0)).OfKey(p.table, p.keys[u]);
      if (client(w).session(of).log().applied() < applied[of]) continue;
      // The base may have fallen meanwhile, with the store's clock; or the row was fetched for this write and
      // has left: then its base was the store's.
      const Clock left = WorkerClock(w, key) == 0 ? ServerClock(key) + static_cast<Clock>(unapplied) : 0;
      int64_t bound = 0;  // an operator may have replaced an older row by a younger one
      for (const Clock clock : {WorkerClock(w, key), before.at(key) + 1, left}) {
        bound = std::max(bound, config_.cache.sync().most_unapplied(clock));
      }
      held_back_[key][w] = bound;
      if (unapplied <= static_cast<uint64_t>(bound)) continue;
      Error("I1: " + std::to_string(unapplied) + " ticks unapplied after a write", w, key);
    }
  }
}

}  // namespace het::testing
