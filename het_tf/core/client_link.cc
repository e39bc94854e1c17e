// The client's frames: sending them, handling answers, and everything that can go wrong in between.
#include <algorithm>
#include <utility>

#include "het_tf/core/client.h"
#include "het_tf/core/local_service.h"

namespace het {

void Client::Progress(double wait) {
  for (Link& link : links_) Pump(&link);
  if (events_.empty() && !transport_->Poll(0, &events_) && wait > 0) {
    bool expected = false;
    double pause = wait;
    const double now = transport_->Now();
    for (const Link& link : links_) {
      expected = expected || !link.outstanding.empty();
      if (!link.waiting.empty() || link.unapplied())
        pause = std::min(pause, std::max(1e-4, link.not_before - now));
    }
    // Nothing is on its way: the wait is for a backoff to end.
    if (expected) {
      transport_->Poll(wait, &events_);
    } else {
      transport_->Sleep(pause);
    }
  }
  size_t handled = 0;
  try {
    while (handled < events_.size()) HandleEvent(&events_[handled++]);
  } catch (...) {  // out of memory: the rest waits for the next call
    events_.erase(events_.begin(), events_.begin() + static_cast<ptrdiff_t>(handled));
    throw;
  }
  events_.clear();
  const double now = transport_->Now();
  for (Link& link : links_) {
    if (link.outstanding.empty() || now - link.outstanding.front().sent_at < config_.request_timeout)
      continue;
    // A late answer would be taken for the next request's: the connection goes with the request.
    transport_->Reset(link.partition);
    Failed(&link, "no answer for " + std::to_string(config_.request_timeout) + " s", true);
  }
  for (Link& link : links_) Pump(&link);
}

// --- sending

void Client::Pump(Link* link) {
  if (!link->fatal.ok()) return;
  const bool push = link->sent_through + 1 < link->next_seq || link->resend;
  if (!push && link->waiting.empty()) return;
  if (link->not_before > 0 && transport_->Now() < link->not_before) return;
  if (link->resend) {
    if (!link->outstanding.empty()) return;
    link->resend = false;
    link->fresh = true;
    link->sent_through = link->applied;
  }
  auto take_part = [link] {
    ReadPartPtr part;
    while (part == nullptr && !link->waiting.empty()) {
      part = std::move(link->waiting.front());
      link->waiting.pop_front();
      if (part->op == nullptr) part = nullptr;
    }
    return part;
  };
  auto send = [&](const PushFrame* frame, const ReadPartPtr& part) {
    try {
      SendRequest(link, frame, part);
    } catch (...) {  // out of memory: it goes out with the next call
      if (part != nullptr) link->waiting.push_front(part);
      throw;
    }
  };
  for (auto frame = link->After(link->sent_through); frame != link->frames.end(); ++frame) {
    send(&*frame, frame->seq + 1 == link->next_seq ? take_part() : nullptr);
    link->sent_through = frame->seq;
  }
  while (ReadPartPtr part = take_part()) send(nullptr, part);
}

void Client::SendRequest(Link* link, const PushFrame* frame, ReadPartPtr part) {
  Request request;
  request.request_id = next_request_id_++;
  request.partition = transport_->id(link->partition);
  request.client = link->client;
  request.seq = frame == nullptr ? 0 : frame->seq;
  // A read must see every own push that was numbered before it.
  request.after_seq = part == nullptr ? 0 : link->next_seq - 1;
  auto table = [&](TableCache* cache) -> TableRequest& {
    for (TableRequest& t : request.tables) {
      if (t.table == cache->schema().id()) return t;
    }
    TableRequest t;
    t.table = cache->schema().id();
    const auto epoch = link->epochs.find(t.table);
    t.epoch = epoch == link->epochs.end() ? 0 : epoch->second;
    t.update_floats = static_cast<uint32_t>(cache->schema().optimizer().wire_floats());
    t.bound = cache->config().pull_bound;
    request.tables.push_back(std::move(t));
    return request.tables.back();
  };
  if (frame != nullptr) {
    for (const PushFrame::Section& section : frame->sections) {
      if (section.keys.empty()) continue;
      TableRequest& t = table(section.cache);
      t.push_keys = section.keys;
      t.push_ticks = section.ticks;
      t.push_updates = section.wire;
    }
  }
  if (part != nullptr) {
    for (const ReadPart::Section& section : part->sections) {
      TableRequest& t = table(section.cache);
      t.check_keys = section.checks;
      t.check_clocks = section.clocks;
      t.fetch_keys = section.fetches;
      section.cache->counters().checks += section.checks.size();
    }
  }
  Bytes bytes;
  Vector<size_t> parts;
  Encode(request, &bytes, &parts);
  size_t head = bytes.size();
  for (size_t size : parts) head -= size;
  const bool again = frame != nullptr && frame->seq <= link->ever_sent;
  for (size_t i = 0; i < parts.size(); ++i) {
    const TableRequest& t = request.tables[i];
    Counters& counters = caches_.at(t.table)->counters();
    const size_t rows = t.push_updates.size() * sizeof(float);
    ++counters.requests;
    counters.resends += again && !t.push_keys.empty();
    counters.row_bytes_out += rows;
    counters.metadata_bytes_out += parts[i] - rows + (i == 0 ? head : 0);
  }
  link->outstanding.push_back({request.request_id, std::move(part), transport_->Now(), link->fresh,
                               request.tables.empty() ? 0 : request.tables[0].table});
  link->fresh = false;
  if (frame != nullptr) link->ever_sent = std::max(link->ever_sent, frame->seq);
  transport_->Send(link->partition, std::move(bytes));
}

// --- answers

void Client::HandleEvent(Transport::Event* event) {
  Link* link = &links_[event->partition];
  if (event->kind == Transport::Event::kClosed) return Failed(link, event->reason, true);
  // What was sent before this call may have been rejected for a reason that is gone by now: it is tried
  // again.
  if (event->kind == Transport::Event::kRejected && !link->outstanding.empty() &&
      link->outstanding.front().sent_at >= waiting_since_) {
    rejected_ = FailedPrecondition(event->reason);
  }
  if (event->kind == Transport::Event::kRefused || event->kind == Transport::Event::kRejected) {
    if (!link->outstanding.empty()) {
      Requeue(link, std::move(link->outstanding.front().part));
      link->outstanding.pop_front();
    }
    return Failed(link, event->reason, false);
  }
  Reply reply;
  Vector<size_t> parts;
  if (!Decode(Span<const uint8_t>(event->bytes.data(), event->bytes.size()), &reply, &parts).ok()) {
    transport_->Reset(link->partition);
    return Failed(link, "a damaged reply", true);
  }
  CountReply(*link, reply, event->bytes.size(), parts);
  HandleReply(link, reply);
}

void Client::CountReply(const Link& link, const Reply& reply, size_t bytes, const Vector<size_t>& parts) {
  size_t head = bytes;
  for (size_t i = 0; i < parts.size(); ++i) {
    head -= parts[i];
    const auto cache = caches_.find(reply.tables[i].table);
    if (cache == caches_.end()) continue;
    const size_t rows = reply.tables[i].rows.size() * sizeof(float);
    cache->second->counters().row_bytes_in += rows;
    cache->second->counters().metadata_bytes_in += parts[i] - rows;
  }
  for (const Link::Outstanding& request : link.outstanding) {
    if (request.request_id != reply.request_id) continue;
    const auto cache = caches_.find(request.first_table);
    if (cache != caches_.end()) cache->second->counters().metadata_bytes_in += head;
  }
}

void Client::HandleReply(Link* link, const Reply& reply) {
  const auto it = std::find_if(link->outstanding.begin(), link->outstanding.end(),
                               [&](const Link::Outstanding& o) { return o.request_id == reply.request_id; });
  if (it == link->outstanding.end()) return;  // late or twice: its request was given up, or is answered
  const Link::Outstanding request = std::move(*it);
  link->outstanding.erase(it);

  if (link->past_incs.count(reply.inc) != 0) return Requeue(link, request.part);
  if (reply.inc != link->inc) {
    if (link->inc != 0) {
      link->past_incs.insert(link->inc);
      link->inc = reply.inc;
      Reborn(link, reply.last_seq);
      return Requeue(link, request.part);
    }
    link->inc = reply.inc;
  }

  switch (reply.status) {
    case FrameStatus::kOk: {
      link->failures = 0;
      link->not_before = 0;
      link->last_failure.clear();
      const bool late = reply.last_seq < link->applied;
      Acknowledge(link, reply.last_seq);
      if (request.part == nullptr || request.part->op == nullptr) return;
      // An answer from before frames that are no longer kept cannot be brought up to date.
      if (late && reply.last_seq < link->durable) return Requeue(link, request.part);
      if (!AnswersRequest(reply, *request.part)) {
        Requeue(link, request.part);
        transport_->Reset(link->partition);
        return Failed(link, "a reply that does not fit its request", true);
      }
      try {
        return HandleAnswer(link, reply, request.part.get());
      } catch (...) {
        Requeue(link, request.part);
        throw;
      }
    }
    case FrameStatus::kGap:
      if (reply.last_seq < link->applied && request.fresh) {
        // Nothing else was on its way, and still the partition does not know what it acknowledged: it lost
        // it, or forgot this client.
        Reborn(link, reply.last_seq);
      } else {
        Acknowledge(link, reply.last_seq);
        link->resend = true;
      }
      return Requeue(link, request.part);
    case FrameStatus::kEpoch:
      for (const TableReply& t : reply.tables) {
        const auto cache = caches_.find(t.table);
        if (cache != caches_.end()) NewEpoch(link, cache->second.get(), t.epoch);
      }
      Acknowledge(link, reply.last_seq);
      link->resend = true;
      return Requeue(link, request.part);
    case FrameStatus::kOutOfMemory:
      Acknowledge(link, reply.last_seq);
      Requeue(link, request.part);
      return Failed(link, kStoreOutOfMemory, false);
    case FrameStatus::kNoTable:
      // Somebody has dropped it: what is left of it here goes, and the other tables go on.
      rejected_ = FailedPrecondition("partition " + std::to_string(link->partition) +
                                     " refuses this client: " + reply.message);
      for (const TableReply& t : reply.tables) {
        const auto cache = caches_.find(t.table);
        if (cache != caches_.end()) DropTablePart(link, cache->second.get());
        link->epochs.erase(t.table);
      }
      Acknowledge(link, reply.last_seq);
      link->resend = true;
      if (request.part != nullptr) Fail(request.part.get(), rejected_);
      return;
    case FrameStatus::kWrongPartition:
    case FrameStatus::kBadFrame:
      link->fatal = FailedPrecondition("partition " + std::to_string(link->partition) +
                                       " refuses this client: " + reply.message);
      if (request.part != nullptr) Fail(request.part.get(), link->fatal);
      return;
  }
}

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
    Counters& counters = cache->counters();
    const float* row = t.rows.data();
    auto next_row = [&](Clock clock) {
      const float* here = clock == 0 ? nullptr : row;
      if (clock != 0) row += t.row_floats;
      return here;
    };
    for (size_t i = 0; i < t.refreshed.size(); ++i) {
      const Clock clock = t.refreshed_clocks[i];
      Install(link, cache, section.checks[t.refreshed[i]], clock, next_row(clock), reply.last_seq, false,
              false, op);
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
      const Clock clock = t.fetched_clocks[i];
      Install(link, cache, section.fetches[i], clock, next_row(clock), reply.last_seq, true, admit[i], op);
    }
    counters.update_pull += t.refreshed.size();
    counters.miss_pull += section.fetches.size();
    for (size_t b = 0; b < t.lag_histogram.size(); ++b) counters.lag_histogram[b] += t.lag_histogram[b];
  }
  part->op = nullptr;
  --op->open_parts;
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
  uint64_t own_ticks = 0;
  for (auto frame = link->After(applied); frame != link->frames.end(); ++frame) {
    PushFrame::Section* section = frame->Of(cache);
    const int64_t at = section == nullptr ? -1 : section->Position(key);
    if (at < 0) continue;
    const uint32_t ticks = section->ticks[static_cast<size_t>(at)];
    optimizer.MergeWire(section->update(static_cast<size_t>(at)), ticks, x);
    own_ticks += ticks;
  }
  if (line != kNoRow) {
    cache->base(line) = clock + static_cast<Clock>(own_ticks);
    if (cache->pending(line) > 0) optimizer.MergeInto(cache->UpdateOf(line), cache->pending(line), x);
  } else if (const TableCache::Queued* queued = cache->FindQueued(key)) {
    optimizer.MergeInto(cache->queued_update(*queued), queued->ticks, x);
  }
}

// --- failures

void Client::Acknowledge(Link* link, uint64_t last_seq) {
  link->applied = std::max(link->applied, std::min(last_seq, link->next_seq - 1));
  link->sent_through = std::max(link->sent_through, link->applied);
  if (!config_.keep_until_durable) link->ForgetThrough(link->applied);
}

void Client::Reborn(Link* link, uint64_t last_seq) {
  for (auto& [table, cache] : caches_) {
    cache->ForEachLine([&, c = cache.get()](uint32_t line) {
      if (LinkOf(*c, c->lines().meta(line).key) == link) c->SetInvalid(line, true);
    });
  }
  // Answers that are still owed are about the old bases.
  for (Link::Outstanding& request : link->outstanding) Requeue(link, std::exchange(request.part, nullptr));
  link->resend = true;
  if (last_seq >= link->applied) return Acknowledge(link, last_seq);
  if (last_seq >= link->durable) {  // everything that was lost is still here
    link->applied = last_seq;
    return;
  }
  if (!caches_.empty()) caches_.begin()->second->counters().lost_pushes += link->durable - last_seq;
  link->Renumber(ClientId{RandomId(), RandomId()});
}

void Client::DropTablePart(Link* link, TableCache* cache) {
  uint64_t discarded = 0;
  auto of_link = [&](Key key) { return LinkOf(*cache, key) == link; };
  cache->ForEachLine([&](uint32_t line) {
    if (of_link(cache->lines().meta(line).key)) discarded += cache->Drop(line);
  });
  discarded += cache->DropQueued(of_link);
  for (PushFrame& frame : link->frames) {
    PushFrame::Section* section = frame.Of(cache);
    if (section == nullptr || frame.seq <= link->applied) continue;
    for (uint32_t ticks : section->ticks) discarded += ticks;
    *section = PushFrame::Section{cache, {}, {}, {}, {}};
  }
  cache->counters().discarded_ticks += discarded;
}

void Client::NewEpoch(Link* link, TableCache* cache, uint64_t epoch) {
  const auto known = link->epochs.find(cache->schema().id());
  if (known == link->epochs.end()) {
    link->epochs[cache->schema().id()] = epoch;
    return;
  }
  if (known->second == epoch) return;
  known->second = epoch;
  if (config_.on_reload == ClientConfig::kDiscard) return DropTablePart(link, cache);
  cache->ForEachLine([&](uint32_t line) {
    if (LinkOf(*cache, cache->lines().meta(line).key) == link) cache->SetInvalid(line, true);
  });
}

void Client::Failed(Link* link, const std::string& reason, bool connection_lost) {
  const double now = transport_->Now();
  out_of_memory_ += reason == kStoreOutOfMemory;
  if (link->failures == 0) link->failing_since = now;
  const double backoff =
      std::min(config_.max_backoff,
               config_.first_backoff * static_cast<double>(1u << std::min<size_t>(link->failures, 10)));
  ++link->failures;
  // Between half and all of it, so that clients that failed together do not come back together.
  jitter_ = Mix64(jitter_ + 1);
  link->not_before =
      now + backoff * (0.5 + static_cast<double>(jitter_ >> 12) / static_cast<double>(uint64_t{1} << 53));
  link->last_failure = reason;
  link->resend = true;
  if (!connection_lost) return;
  std::deque<Link::Outstanding> lost;
  lost.swap(link->outstanding);
  for (Link::Outstanding& request : lost) Requeue(link, std::move(request.part));
}

// The part is asked again; what was to be checked and has become invalid meanwhile is fetched.
void Client::Requeue(Link* link, ReadPartPtr part) {
  if (part == nullptr || part->op == nullptr) return;
  for (ReadPart::Section& section : part->sections) {
    size_t kept = 0;
    for (size_t i = 0; i < section.checks.size(); ++i) {
      const uint32_t line = section.cache->lines().Find(section.checks[i]);
      if (line == kNoRow || section.cache->invalid(line)) {
        section.fetches.push_back(section.checks[i]);
        continue;
      }
      section.checks[kept] = section.checks[i];
      section.clocks[kept++] = section.cache->base(line);
    }
    section.checks.resize(kept);
    section.clocks.resize(kept);
  }
  link->waiting.push_back(std::move(part));
}

void Client::Fail(ReadPart* part, Status status) {
  if (part->op == nullptr) return;
  part->op->error = std::move(status);
  part->op = nullptr;
}

}  // namespace het
