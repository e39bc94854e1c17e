#include "het_tf/core/client/row_sink.h"

#include <algorithm>

#include "het_tf/core/client/asker.h"

namespace het {
namespace {

// Makes `line` the row of an answer, with every own update on top.
void FillLine(TableCache* cache, uint32_t line, Clock clock, const float* row, const TableAnswer& answer) {
  const TableSchema& schema = *cache->schema();
  Lines& lines = cache->lines();
  LineMarks& marks = cache->marks();
  float* const x = lines.data(line);
  const bool subscribed = marks.subscribed(line);
  marks.Invalidate(line);  // until all is on top
  const uint64_t own = FillRow(schema, lines.meta(line).key, row, answer.log, answer.applied, x);
  lines.base(line) = clock + static_cast<Clock>(own);
  Unsent& unsent = cache->unsent();
  if (unsent.has_update(line)) schema.optimizer().MergeInto(unsent.UpdateOf(line), lines.pending(line), x);
  marks.Validate(line);
  if (subscribed) marks.Subscribe(line);
}

}  // namespace

uint64_t FillRow(const TableSchema& schema, Key key, const float* row, PushLog* log, uint64_t applied,
                 float* x) {
  if (row == nullptr) {
    schema.InitRow(key, x);
  } else {
    std::copy_n(row, schema.row_floats(), x);
  }
  return log->MergeOnto(schema.id(), key, applied, x);
}

void CacheSink::Classify(const CachedRead& read, Asker* asker) {
  for (const CachedRead::Part& part : read.parts) {
    TableCache& cache = tables_->at(part.table);
    Enter(&cache);
    const size_t first = lines_.size();
    lines_.resize(first + part.uniques);
    const Span<const uint32_t> lines(lines_.data() + first, part.uniques);
    cache.lines().FindBatch(part.keys, part.hashes, part.uniques, lines_.data() + first);
    Meet(&cache, lines);
    asker->Begin(&cache, part.partition);
    for (size_t u = 0; u < part.uniques; ++u) {
      asker->Key(part.keys[u], lines[u], static_cast<uint32_t>(first + u));
    }
  }
}

size_t CacheSink::Take(const TableRead& asked, const TableAnswer& answer, ReplyRows* rows) {
  TableCache* const cache = asked.cache;
  const TableReply& reply = answer.reply;
  for (size_t i = 0; i < reply.refreshed.size(); ++i) {
    const uint32_t check = reply.refreshed[i];
    const Clock clock = asked.Refreshed(check, reply.refreshed_lags[i]);
    FillLine(cache, lines_[asked.check_at[check]], clock, rows->Next(clock), answer);
  }
  size_t absent = 0;
  for (size_t i = 0; i < asked.fetches.size(); ++i) {
    const Clock clock = reply.fetched_clocks[i];
    const float* const row = rows->Next(clock);
    uint32_t& line = lines_[asked.fetch_at[i]];
    if (line == kNoRow) {
      const Key key = asked.fetches[i];
      const uint64_t hash = cache->lines().Hash(key);
      line = cache->lines().Find(key, hash);
      if (line == kNoRow) {
        line = TakeAbsent(cache, {key, hash, clock, row}, answer);
        ++absent;
        continue;
      }
      // Another read has brought it meanwhile. This answer is the newer one: this read is to have
      // it, and the partition may count it as what the client holds.
      Hold(cache, line);
    }
    FillLine(cache, line, clock, row, answer);
  }
  if (!answer.subscribed) return absent;
  for (const Vector<uint32_t>* places : {&asked.check_at, &asked.fetch_at}) {
    for (uint32_t at : *places) {
      const uint32_t line = lines_[at];
      if (line != kNoRow && !cache->marks().invalid(line)) cache->marks().Subscribe(line);
    }
  }
  return absent;
}

void CacheSink::Renew(TableRead* asked) {
  TableCache* const cache = asked->cache;
  size_t kept = 0;
  for (size_t i = 0; i < asked->checks.size(); ++i) {
    const uint32_t at = asked->check_at[i];
    if (cache->marks().invalid(lines_[at])) {
      asked->Fetch(asked->checks[i], at);
      continue;
    }
    asked->checks[kept] = asked->checks[i];
    asked->check_at[kept] = at;
    asked->clocks[kept++] = cache->lines().base(lines_[at]);
  }
  asked->checks.resize(kept);
  asked->check_at.resize(kept);
  asked->clocks.resize(kept);
}

void CacheSink::FillIn(CachedRead* read) {
  const uint32_t* line = lines_.data();
  for (CachedRead::Part& part : read->parts) {
    TableCache& cache = tables_->at(part.table);
    if (read->planned != 0) cache.policy().set_planned(read->planned);
    for (size_t u = 0; u < part.uniques; ++u) {
      uint32_t& row = part.rows[u] = *line++;
      if (row == kNoRow) row = cache.lines().Find(part.keys[u], part.hashes[u]);
      if (row == kNoRow) {
        part.values[u] = ValueOf(read, &cache, part.keys[u]);
        continue;
      }
      if (read->follows) cache.marks().Follow(row);
      if (part.next_use != nullptr) cache.policy().SetNextUse(row, part.next_use[u]);
      part.values[u] = cache.lines().data(row);
    }
  }
}

// --- a training read

LineSink::~LineSink() {
  for (const auto& [cache, number] : waiting_) cache->numbers().EndWaiting(number);
}

void LineSink::Enter(TableCache* cache) {
  if (step_ != LookupNumbers::kNoStep) cache->BeginLookup(step_);
  if (!waiting_.empty() && waiting_.back().first == cache) return;
  waiting_.emplace_back(cache, cache->numbers().BeginWaiting(step_));
}

void LineSink::Meet(TableCache* cache, Span<const uint32_t> lines) {
  EvictionPolicy& eviction = cache->policy().eviction();
  const uint32_t until = cache->numbers().Until(step_);
  size_t hits = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t next = i + Lines::kAhead;
    if (next < lines.size() && lines[next] != kNoRow) {
      cache->lines().PrefetchState(lines[next]);
      eviction.Prefetch(lines[next]);
    }
    if (lines[i] == kNoRow) continue;
    if (!cache->marks().transient(lines[i])) eviction.Touch(lines[i]);
    cache->marks().Hold(lines[i], until);
    ++hits;
  }
  cache->counters().reads += lines.size();
  cache->counters().hits += hits;
}

void LineSink::Hold(TableCache* cache, uint32_t line) {
  cache->marks().Hold(line, cache->numbers().Until(step_));
}

uint32_t LineSink::TakeAbsent(TableCache* cache, const Fetched& fetched, const TableAnswer& answer) {
  const bool transient = cache->policy().config().capacity == 0;
  const uint32_t line = cache->Insert(fetched.key, fetched.hash, 0, transient);
  cache->marks().Invalidate(line);
  Hold(cache, line);
  const WriteBackQueue::Queued* const queued = cache->unsent().queue().Find(fetched.key);
  if (queued != nullptr) cache->unsent().Restore(line, *queued);
  FillLine(cache, line, fetched.clock, fetched.row, answer);
  return line;
}

// --- a read without training

PrivateSink::~PrivateSink() {
  for (TableCache* cache : reading_) cache->numbers().EndReading();
}

void PrivateSink::Enter(TableCache* cache) {
  reading_.push_back(cache);
  cache->numbers().BeginReading();
}

uint32_t PrivateSink::TakeAbsent(TableCache* cache, const Fetched& fetched, const TableAnswer& answer) {
  const TableSchema& schema = *cache->schema();
  Vector<float>& own = fetched_[{cache, fetched.key}];
  own.resize(schema.row_floats());
  FillRow(schema, fetched.key, fetched.row, answer.log, answer.applied, own.data());
  if (const WriteBackQueue::Queued* queued = cache->unsent().queue().Find(fetched.key)) {
    schema.optimizer().MergeInto(cache->unsent().update(*queued), queued->ticks, own.data());
  }
  return kNoRow;
}

const float* PrivateSink::ValueOf(CachedRead* read, const TableCache* cache, Key key) {
  read->private_rows.push_back(std::move(fetched_.find({cache, key})->second));
  return read->private_rows.back().data();
}

}  // namespace het
