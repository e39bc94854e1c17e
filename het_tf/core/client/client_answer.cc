// Rows that have come: into the cache, with everything on top that the server did not know yet.
#include <algorithm>

#include "het_tf/core/client/client.h"

namespace het {

bool Client::AnswersRequest(const Reply& reply, const ReadPart& part) const {
  for (const ReadPart::Section& section : part.sections) {
    const auto t = std::find_if(reply.tables.begin(), reply.tables.end(), [&](const TableReply& candidate) {
      return candidate.table == section.cache->schema().id();
    });
    if (t == reply.tables.end() || t->fetched_clocks.size() != section.fetches.size()) return false;
    if (t->told_keys.size() != t->told_clocks.size()) return false;
    if (!t->rows.empty() && t->row_floats != section.cache->schema().row_floats()) return false;
    for (uint32_t position : t->refreshed) {
      if (position >= section.checks.size()) return false;
    }
  }
  return std::all_of(reply.tables.begin(), reply.tables.end(), [&](const TableReply& t) {
    const auto cache = caches_.find(t.table);
    return t.told_keys.empty() || cache == caches_.end() ||
           t.row_floats == cache->second->schema().row_floats();
  });
}

void Client::HandleAnswer(Link* link, const Reply& reply, const ReadPartPtr& part, bool told) {
  ReadOp* op = part->op;
  if (told && (reply.told_reset || reply.told == 0)) NothingIsHeld(link);
  for (const ReadPart::Section& section : part->sections) {
    TableCache* cache = section.cache;
    const TableReply& t =
        *std::find_if(reply.tables.begin(), reply.tables.end(),
                      [&](const TableReply& candidate) { return candidate.table == cache->schema().id(); });
    if (section.device != nullptr) {
      AnswerForDevice(link, reply.last_seq, t, section);
    } else {
      InstallAnswer(link, reply, t, section, op);
    }
    Counters& counters = cache->counters();
    counters.update_pull += t.refreshed.size();
    counters.miss_pull += section.fetches.size();
    if (op->ahead) counters.prefetched += section.fetches.size();
    for (size_t b = 0; b < t.lag_histogram.size(); ++b) counters.lag_histogram[b] += t.lag_histogram[b];
  }
  progress_at_ = transport_->Now();
  if (told) {
    // A push in the same frame may have named further tables.
    for (const TableReply& t : reply.tables) {
      const auto cache = caches_.find(t.table);
      const bool read = std::any_of(part->sections.begin(), part->sections.end(), [&](const auto& section) {
        return section.cache->schema().id() == t.table;
      });
      if (t.told_keys.empty() || read || cache == caches_.end()) continue;
      ReplyRows rows(t);
      TakeTold(link, reply, t, cache->second.get(), &rows);
    }
    link->told = reply.told;
    // What was trusted and is not held any more is asked about after all.
    if (ReadPartPtr doubted = Doubted(*part)) {
      std::replace(op->parts.begin(), op->parts.end(), part, doubted);
      if (op->ahead) Arrived(*part);  // what it fetched is here
      part->op = nullptr;
      link->waiting.push_back(std::move(doubted));
      return;
    }
  }
  part->op = nullptr;
  --op->open_parts;
}

void Client::InstallAnswer(Link* link, const Reply& reply, const TableReply& answer,
                           const ReadPart::Section& section, ReadOp* op) {
  const uint64_t applied = reply.last_seq;
  TableCache* cache = section.cache;
  const bool hold = section.hold && reply.told != 0;
  ReplyRows rows(answer);
  for (size_t i = 0; i < answer.refreshed.size(); ++i) {
    const Clock clock = answer.refreshed_clocks[i];
    Install(link, cache, section.checks[answer.refreshed[i]], clock, rows.Next(clock), applied, false, false,
            op);
  }
  Vector<uint8_t> admit(section.fetches.size());
  op->pins.reserve(op->pins.size() + section.fetches.size());  // Install does not ask
  if (op->token != 0 && !op->ahead) {
    size_t incoming = 0;
    for (size_t i = 0; i < section.fetches.size(); ++i) {
      const uint64_t hash = cache->lines().Hash(section.fetches[i]);
      if (cache->lines().Find(section.fetches[i], hash) != kNoRow) continue;
      admit[i] = cache->Admit(hash);
      incoming += admit[i];
    }
    cache->MakeRoom(incoming);
    if (cache->queued() > cache->config().write_back_rows) PushQueues();
  }
  for (size_t i = 0; i < section.fetches.size(); ++i) {
    const Clock clock = answer.fetched_clocks[i];
    Install(link, cache, section.fetches[i], clock, rows.Next(clock), applied, true, admit[i], op);
  }
  for (const Vector<Key>* keys : {&section.checks, &section.fetches}) {
    for (size_t i = 0; hold && i < keys->size(); ++i) {
      const uint32_t line = cache->lines().Find((*keys)[i]);
      if (line != kNoRow && !cache->invalid(line)) cache->SetHeld(line, true);
    }
  }
  TakeTold(link, reply, answer, cache, &rows);
}

// A row as the server had it after `applied`, with everything of ours that it does not contain put on top.
void Client::Install(Link* link, TableCache* cache, Key key, Clock clock, const float* row, uint64_t applied,
                     bool fetched, bool admit, ReadOp* op) {
  RowStore& lines = cache->lines();
  const TableSchema& schema = cache->schema();
  const Optimizer& optimizer = schema.optimizer();
  const uint64_t hash = lines.Hash(key);
  uint32_t line = lines.Find(key, hash);
  const bool held = line != kNoRow && cache->held(line);
  // Another read may have brought it meanwhile. This answer is the newer one: this read is to have it, and
  // the partition may count it as what the client holds.
  if (line != kNoRow && fetched) {
    cache->Pin(line);
    op->pins.push_back({cache, line});
  }
  if (line == kNoRow && !fetched) return;  // a refreshed line that was let go

  float* x = nullptr;
  if (line != kNoRow) {
    x = lines.data(line);
  } else if (op->token != 0) {
    const bool transient = !admit || cache->resident() >= cache->config().capacity;
    line = cache->Insert(key, hash, 0, transient);
    if (op->ahead) cache->MarkAhead(line, /*fetched=*/true);
    cache->Pin(line);
    op->pins.push_back({cache, line});
    if (const TableCache::Queued* queued = cache->FindQueued(key)) cache->Restore(line, *queued);
    x = lines.data(line);
  } else {
    Vector<float>& own = op->fetched[{cache, key}];
    own.resize(schema.row_floats());
    x = own.data();
  }
  // If memory ends before all is on top, the row is fetched anew.
  if (line != kNoRow) cache->SetInvalid(line, true);
  if (row == nullptr) {
    schema.InitRow(key, x);
  } else {
    std::copy_n(row, schema.row_floats(), x);
  }
  const uint64_t own_ticks = link->log.MergeOnto(schema.id(), key, applied, x);
  if (line != kNoRow) {
    cache->base(line) = clock + static_cast<Clock>(own_ticks);
    if (cache->has_update(line)) optimizer.MergeInto(cache->UpdateOf(line), cache->pending(line), x);
    cache->SetInvalid(line, false);
    cache->SetHeld(line, held);
  } else if (const TableCache::Queued* queued = cache->FindQueued(key)) {
    optimizer.MergeInto(cache->queued_update(*queued), queued->ticks, x);
  }
}

}  // namespace het
