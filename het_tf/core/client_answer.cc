// Rows that have come: into the cache, with everything on top that the server did not know yet.
#include <algorithm>

#include "het_tf/core/client.h"

namespace het {

bool Client::AnswersRequest(const Reply& reply, const ReadPart& part) const {
  for (const ReadPart::Section& section : part.sections) {
    const auto t = std::find_if(reply.tables.begin(), reply.tables.end(), [&](const TableReply& candidate) {
      return candidate.table == section.cache->schema().id();
    });
    if (t == reply.tables.end() || t->fetched_clocks.size() != section.fetches.size()) return false;
    if (!t->rows.empty() && t->row_floats != section.cache->schema().row_floats()) return false;
    for (uint32_t position : t->refreshed) {
      if (position >= section.checks.size()) return false;
    }
  }
  return true;
}

void Client::HandleAnswer(Link* link, const Reply& reply, ReadPart* part) {
  ReadOp* op = part->op;
  for (const ReadPart::Section& section : part->sections) {
    TableCache* cache = section.cache;
    const TableReply& t =
        *std::find_if(reply.tables.begin(), reply.tables.end(),
                      [&](const TableReply& candidate) { return candidate.table == cache->schema().id(); });
    if (section.device != nullptr) {
      AnswerForDevice(link, reply.last_seq, t, section);
    } else {
      InstallAnswer(link, reply.last_seq, t, section, op);
    }
    Counters& counters = cache->counters();
    counters.update_pull += t.refreshed.size();
    counters.miss_pull += section.fetches.size();
    for (size_t b = 0; b < t.lag_histogram.size(); ++b) counters.lag_histogram[b] += t.lag_histogram[b];
  }
  part->op = nullptr;
  --op->open_parts;
  progress_at_ = transport_->Now();
}

void Client::InstallAnswer(Link* link, uint64_t applied, const TableReply& answer,
                           const ReadPart::Section& section, ReadOp* op) {
  TableCache* cache = section.cache;
  ReplyRows rows(answer);
  for (size_t i = 0; i < answer.refreshed.size(); ++i) {
    const Clock clock = answer.refreshed_clocks[i];
    Install(link, cache, section.checks[answer.refreshed[i]], clock, rows.Next(clock), applied, false, false,
            op);
  }
  Vector<uint8_t> admit(section.fetches.size());
  op->pins.reserve(op->pins.size() + section.fetches.size());  // Install does not ask
  if (op->token != 0) {
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
}

// Puts own frames after `applied` on top of a row as the server had it then; returns their ticks.
uint64_t Client::MergeFrames(Link* link, TableCache* cache, Key key, uint64_t applied, float* row) {
  uint64_t own_ticks = 0;
  for (auto frame = link->After(applied); frame != link->frames.end(); ++frame) {
    PushFrame::Section* section = frame->Of(cache);
    const int64_t at = section == nullptr ? -1 : section->Position(key);
    if (at < 0) continue;
    const uint32_t ticks = section->ticks[static_cast<size_t>(at)];
    cache->schema().optimizer().MergeWire(section->update(static_cast<size_t>(at)), ticks, row);
    own_ticks += ticks;
  }
  return own_ticks;
}

// A row as the server had it after `applied`, with everything of ours that it does not contain put on top.
void Client::Install(Link* link, TableCache* cache, Key key, Clock clock, const float* row, uint64_t applied,
                     bool fetched, bool admit, ReadOp* op) {
  RowStore& lines = cache->lines();
  const TableSchema& schema = cache->schema();
  const Optimizer& optimizer = schema.optimizer();
  const uint64_t hash = lines.Hash(key);
  uint32_t line = lines.Find(key, hash);
  // Another read has brought it meanwhile.
  if (line != kNoRow && fetched && !cache->invalid(line)) {
    cache->Pin(line);
    op->pins.push_back({cache, line});
    return;
  }
  if (line == kNoRow && !fetched) return;  // a refreshed line that was let go

  float* x = nullptr;
  if (line != kNoRow) {
    x = lines.data(line);
    cache->SetInvalid(line, false);
  } else if (op->token != 0) {
    const bool transient = !admit || cache->resident() >= cache->config().capacity;
    line = cache->Insert(key, hash, 0, transient);
    cache->Pin(line);
    op->pins.push_back({cache, line});
    if (const TableCache::Queued* queued = cache->FindQueued(key)) cache->Restore(line, *queued);
    x = lines.data(line);
  } else {
    Vector<float>& own = op->fetched[{cache, key}];
    own.resize(schema.row_floats());
    x = own.data();
  }
  if (row == nullptr) {
    schema.InitRow(key, x);
  } else {
    std::copy_n(row, schema.row_floats(), x);
  }
  const uint64_t own_ticks = MergeFrames(link, cache, key, applied, x);
  if (line != kNoRow) {
    cache->base(line) = clock + static_cast<Clock>(own_ticks);
    if (cache->pending(line) > 0) optimizer.MergeInto(cache->UpdateOf(line), cache->pending(line), x);
  } else if (const TableCache::Queued* queued = cache->FindQueued(key)) {
    optimizer.MergeInto(cache->queued_update(*queued), queued->ticks, x);
  }
}

}  // namespace het
