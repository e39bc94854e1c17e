// The client's conversation with partitions: requests out, answers in, and who is given up.
#include <algorithm>
#include <utility>

#include "het_tf/core/client.h"

namespace het {

void Client::Progress(double wait) {
  if (config_.durability == Durability::kReplicated) AskReplicas();
  for (Link& link : links_) Pump(&link);
  if (events_.empty() && !transport_->Poll(0, &events_) && wait > 0) {
    bool expected = false;
    double pause = wait;
    const double now = transport_->Now();
    for (const Link& link : links_) {
      expected = expected || !link.outstanding.empty() || link.asked_on != 0;
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
  CheckTimeouts();
  for (Link& link : links_) Pump(&link);
  if (!loss_.partitions.empty() && transport_->Now() >= loss_.since + 1) ReportLoss();
}

void Client::CheckTimeouts() {
  const double now = transport_->Now();
  for (Link& link : links_) {
    if (link.outstanding.empty() || now - link.outstanding.front().sent_at < config_.request_timeout)
      continue;
    // A large frame on a slow link takes its time: as long as bytes move, somebody is there.
    if (now - transport_->LastMoved(link.partition) < config_.request_timeout) continue;
    // A late answer would be taken for the next request's: the connection goes with the request.
    transport_->Reset(link.partition);
    Failed(&link, "no answer, and no byte moved for " + Seconds(config_.request_timeout), true);
  }
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
  Bytes bytes = transport_->Buffer(0);
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
                               request.tables.empty() ? 0 : request.tables[0].table, again ? 0 : request.seq,
                               0, request.client});
  link->fresh = false;
  if (frame != nullptr) link->ever_sent = std::max(link->ever_sent, frame->seq);
  transport_->Send(link->partition, std::move(bytes));
  link->outstanding.back().connection = transport_->Connection(link->partition);
}

// --- answers

void Client::HandleEvent(Transport::Event* event) {
  Link* link = &links_[event->partition];
  if (event->kind == Transport::Event::kClosed) return Failed(link, event->reason, true);
  if (event->kind == Transport::Event::kReplicas || event->kind == Transport::Event::kUncounted)
    return HandleReplicas(link, *event);
  if (event->kind == Transport::Event::kRefused || event->kind == Transport::Event::kRejected) {
    // Requests of a partition that moves may be at two servers: the later one may be answered first.
    const auto refused = std::find_if(
        link->outstanding.begin(), link->outstanding.end(), [&](const Link::Outstanding& request) {
          return event->request_id == 0 || request.request_id == event->request_id;
        });
    if (refused != link->outstanding.end()) {
      // What was sent before this call may have been rejected for a reason that is gone by now: it is tried
      // again.
      if (event->kind == Transport::Event::kRejected && refused->sent_at >= waiting_since_) {
        rejected_ = FailedPrecondition(event->reason);
      }
      Requeue(link, std::move(refused->part));
      link->outstanding.erase(refused);
    }
    return Failed(link, event->reason, false);
  }
  Reply reply;
  Vector<size_t> parts;
  const size_t bytes = event->bytes.size();
  if (!Decode(Span<const uint8_t>(event->bytes.data(), event->bytes.size()), &reply, &parts).ok()) {
    transport_->Reset(link->partition);
    return Failed(link, "a damaged reply", true);
  }
  transport_->Recycle(std::move(event->bytes));
  CountReply(*link, reply, bytes, parts);
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

  // What the partition has of an identity that was given up says nothing about the new one's frames.
  if (!(request.client == link->client)) return Requeue(link, request.part);
  // Late, unless nothing else was on its way: then two servers have changed places and back, and the
  // partition is the one that it was. It is asked once more to find out.
  if (link->past_incs.count(reply.inc) != 0 && !request.fresh) {
    link->resend = true;
    return Requeue(link, request.part);
  }
  if (reply.inc != link->inc) {
    if (link->inc != 0) {
      link->past_incs.erase(reply.inc);
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
      if (request.seq != 0 && reply.last_seq >= request.seq) {
        link->written = request.seq;
        link->written_on = request.connection;
      }
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
        // Nothing else was on its way, and still the partition, which has lived on, does not know what it
        // acknowledged. It has forgotten this client: after days without a push, or because rows were loaded,
        // of which the epoch tells. Or it was loaded to an earlier state of this client.
        reply.last_seq == 0 ? Forgotten(link) : Reborn(link, reply.last_seq);
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

}  // namespace het
