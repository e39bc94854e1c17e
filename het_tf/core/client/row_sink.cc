#include "het_tf/core/client/row_sink.h"

#include <algorithm>

namespace het {

uint64_t FillRow(const TableSchema& schema, Key key, const float* row, PushLog* log, uint64_t applied,
                 float* x) {
  if (row == nullptr) {
    schema.InitRow(key, x);
  } else {
    std::copy_n(row, schema.row_floats(), x);
  }
  return log->MergeOnto(schema.id(), key, applied, x);
}

void FillLine(TableCache* cache, uint32_t line, Clock clock, const float* row, PushLog* log,
              uint64_t applied) {
  const TableSchema& schema = cache->schema();
  float* const x = cache->lines().data(line);
  const bool subscribed = cache->subscribed(line);
  cache->SetInvalid(line, true);  // until all is on top
  const uint64_t own = FillRow(schema, cache->lines().meta(line).key, row, log, applied, x);
  cache->base(line) = clock + static_cast<Clock>(own);
  if (cache->has_update(line)) schema.optimizer().MergeInto(cache->UpdateOf(line), cache->pending(line), x);
  cache->SetInvalid(line, false);
  cache->SetSubscribed(line, subscribed);
}

void RowSink::Renew(TableRead* asked) {
  TableCache* const cache = asked->cache;
  size_t kept = 0;
  for (size_t i = 0; i < asked->checks.size(); ++i) {
    const uint32_t line = cache->lines().Find(asked->checks[i]);
    if (line == kNoRow || cache->invalid(line)) {
      asked->fetches.push_back(asked->checks[i]);
      continue;
    }
    asked->checks[kept] = asked->checks[i];
    asked->clocks[kept++] = cache->base(line);
  }
  asked->checks.resize(kept);
  asked->clocks.resize(kept);
}

void CacheSink::Take(const TableRead& asked, const TableAnswer& answer, ReplyRows* rows) {
  TableCache* const cache = asked.cache;
  const TableReply& reply = answer.reply;
  for (size_t i = 0; i < reply.refreshed.size(); ++i) {
    const Clock clock = reply.refreshed_clocks[i];
    const float* const row = rows->Next(clock);
    const uint32_t line = cache->lines().Find(asked.checks[reply.refreshed[i]]);
    if (line == kNoRow) continue;
    FillLine(cache, line, clock, row, answer.log, answer.applied);
  }
  Vector<uint8_t> admit(asked.fetches.size());
  Admit(cache, asked.fetches, &admit);
  for (size_t i = 0; i < asked.fetches.size(); ++i) {
    const Key key = asked.fetches[i];
    const Clock clock = reply.fetched_clocks[i];
    const float* const row = rows->Next(clock);
    const uint32_t line = cache->lines().Find(key);
    if (line == kNoRow) {
      TakeAbsent(cache, key, {clock, row, admit[i] != 0}, answer);
      continue;
    }
    // Another read has brought it meanwhile. This answer is the newer one: this read is to have
    // it, and the partition may count it as what the client holds.
    Hold(cache, line);
    FillLine(cache, line, clock, row, answer.log, answer.applied);
  }
  if (!answer.subscribed) return;
  for (const Vector<Key>* keys : {&asked.checks, &asked.fetches}) {
    for (Key key : *keys) {
      const uint32_t line = cache->lines().Find(key);
      if (line != kNoRow && !cache->invalid(line)) cache->SetSubscribed(line, true);
    }
  }
}

// --- a training read

void LineSink::Hold(TableCache* cache, uint32_t line) { cache->HoldForStep(line, op_->step); }

void LineSink::Hit(TableCache* cache, uint32_t line) {
  cache->Touch(line);
  Hold(cache, line);
}

void LineSink::Admit(TableCache* cache, const Vector<Key>& fetches, Vector<uint8_t>* admit) {
  for (size_t i = 0; i < fetches.size(); ++i) {
    const uint64_t hash = cache->lines().Hash(fetches[i]);
    if (cache->lines().Find(fetches[i], hash) != kNoRow) continue;
    (*admit)[i] = cache->Admit(hash);
  }
}

void LineSink::TakeAbsent(TableCache* cache, Key key, const Fetched& fetched, const TableAnswer& answer) {
  const bool transient = !fetched.admit || cache->config().capacity == 0;
  const uint32_t line = cache->Insert(key, cache->lines().Hash(key), 0, transient);
  cache->SetInvalid(line, true);
  if (transient) cache->Pass();
  Hold(cache, line);
  if (const TableCache::Queued* queued = cache->FindQueued(key)) cache->Restore(line, *queued);
  FillLine(cache, line, fetched.clock, fetched.row, answer.log, answer.applied);
}

// --- a read without training

void PrivateSink::TakeAbsent(TableCache* cache, Key key, const Fetched& fetched, const TableAnswer& answer) {
  const TableSchema& schema = cache->schema();
  Vector<float>& own = op_->fetched[{cache, key}];
  own.resize(schema.row_floats());
  FillRow(schema, key, fetched.row, answer.log, answer.applied, own.data());
  if (const TableCache::Queued* queued = cache->FindQueued(key)) {
    schema.optimizer().MergeInto(cache->queued_update(*queued), queued->ticks, own.data());
  }
}

}  // namespace het
