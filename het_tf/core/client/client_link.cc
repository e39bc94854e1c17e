// The client's conversation with partitions: requests out, answers in, and who is given up.
#include <algorithm>
#include <utility>

#include "het_tf/core/client/client.h"
#include "het_tf/core/wire/parts.h"

namespace het {
namespace {

// A frame brings rows of about so many bytes, both ways together; a part with more goes alone. Answers are
// made whole before they travel: several smaller frames keep both sides busy, and the heads of a frame of
// this size are nothing beside its rows.
constexpr size_t kFrameRowBytes = size_t{64} << 10;

}  // namespace

void Client::Progress(double wait) {
  if (config_.durability == Durability::kReplicated) AskReplicas();
  Pump();
  if (events_.empty() && !transport_->Poll(0, &events_) && wait > 0) {
    bool expected = false;
    double pause = wait;
    const double now = transport_->Now();
    for (const Link& link : links_) {
      expected = expected || !link.outstanding.empty() || link.asked_on != 0;
      if (!link.waiting.empty() || link.log.unapplied())
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
  FollowAhead();
  Pump();
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

// What may go out, by shard: in every round at most one request of each link, so that a frame has no two
// parts of one partition, and these stay in order.
void Client::Pump() {
  struct Gathered {
    std::vector<Outgoing> parts;
    size_t bytes = 0;
  };
  for (bool more = true; more;) {
    more = false;
    std::map<uint32_t, Gathered> shards;
    for (Link& link : links_) {
      Outgoing next;
      if (!Next(&link, &next)) continue;
      more = true;
      const size_t bytes = RowBytes(next);
      if (bytes >= kFrameRowBytes || link.failures > 0 || link.alone) {
        Send({next});
        continue;
      }
      Gathered& gathered = shards[transport_->ShardOf(link.partition)];
      if (gathered.bytes + bytes > kFrameRowBytes) {
        Send(gathered.parts);
        gathered = Gathered();
      }
      gathered.parts.push_back(std::move(next));
      gathered.bytes += bytes;
    }
    for (const auto& [shard, gathered] : shards) Send(gathered.parts);
  }
}

// The link's next request, if one may go out. Nothing changes by asking, until it is sent.
bool Client::Next(Link* link, Outgoing* next) {
  if (!link->fatal.ok()) return false;
  auto& waiting = link->waiting;
  while (!waiting.empty() && waiting.front()->op == nullptr) waiting.pop_front();
  const bool push = link->sent_through + 1 < link->log.next_seq() || link->resend;
  if (!push && waiting.empty()) return false;
  if (link->not_before > 0 && transport_->Now() < link->not_before) return false;
  if (link->resend) {
    if (!link->outstanding.empty()) return false;
    link->resend = false;
    link->fresh = true;
    link->sent_through = link->log.applied();
  }
  next->link = link;
  next->frame = link->log.After(link->sent_through);
  const bool last = next->frame == nullptr || next->frame->seq + 1 == link->log.next_seq();
  next->part = last && !waiting.empty() ? waiting.front() : nullptr;
  return next->frame != nullptr || next->part != nullptr;
}

// Of updates in it and of rows that it surely brings.
size_t Client::RowBytes(const Outgoing& request) const {
  size_t bytes = 0;
  if (request.frame != nullptr) {
    for (const TablePush& push : request.frame->tables) {
      bytes += push.keys.size() * LeastRowBytes(caches_.at(push.schema->id())->push_format(),
                                                push.schema->dim(), push.schema->optimizer().wire_floats());
    }
  }
  if (request.part != nullptr) {
    for (const ReadPart::Section& section : request.part->sections) {
      const TableSchema& schema = section.cache->schema();
      bytes += section.fetches.size() *
               LeastRowBytes(section.cache->row_format(), schema.dim(), schema.row_floats());
    }
  }
  return bytes;
}

void Client::MakeRequest(const Outgoing& from, Request* made) {
  Link* const link = from.link;
  Request& request = *made;
  if (from.part != nullptr) Doubt(from.part.get());
  request.request_id = next_request_id_++;
  request.partition = transport_->id(link->partition);
  request.client = link->client;
  request.seq = from.frame == nullptr ? 0 : from.frame->seq;
  // A read must see every own push that was numbered before it: the last of them goes with it, or has gone.
  request.after_seq = from.part == nullptr ? request.seq : link->log.next_seq() - 1;
  request.inc = link->inc;
  auto table = [&](TableCache* cache) -> TableRequest& {
    for (TableRequest& t : request.tables) {
      if (t.table == cache->schema().id()) return t;
    }
    TableRequest t;
    t.table = cache->schema().id();
    const auto epoch = link->epochs.find(t.table);
    t.epoch = epoch == link->epochs.end() ? 0 : epoch->second;
    t.push_format = cache->push_format();
    t.row_format = cache->row_format();
    t.block = static_cast<uint32_t>(cache->schema().dim());
    t.update_floats = static_cast<uint32_t>(cache->schema().optimizer().wire_floats());
    t.bound = cache->config().pull_bound;
    request.tables.push_back(std::move(t));
    return request.tables.back();
  };
  if (from.frame != nullptr) {
    for (const TablePush& push : from.frame->tables) {
      if (push.keys.empty()) continue;
      TableRequest& t = table(caches_.at(push.schema->id()).get());
      t.push_keys = push.keys;
      t.push_ticks = push.ticks;
      t.push_updates = push.wire;
    }
  }
  if (from.part != nullptr) {
    for (const ReadPart::Section& section : from.part->sections) {
      TableRequest& t = table(section.cache);
      t.check_keys = section.checks;
      t.check_clocks = section.clocks;
      t.fetch_keys = section.fetches;
    }
  }
  if (from.part != nullptr) Tell(link, from.part.get(), made);
}

// One frame. If memory ends nothing has changed, and it goes out with the next call.
void Client::Send(const std::vector<Outgoing>& parts) {
  std::vector<Request> requests(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) MakeRequest(parts[i], &requests[i]);
  Vector<TableBytes> tables;
  OutFrame out = EncodeFrame({requests.data(), requests.size()}, transport_->Buffer(0), &tables);
  size_t taken = 0;
  try {
    for (; taken < parts.size(); ++taken) {
      const auto& [link, frame, part] = parts[taken];
      const Request& request = requests[taken];
      const bool again = frame != nullptr && frame->seq <= link->ever_sent;
      link->outstanding.push_back({request.request_id, requests[0].request_id, part, transport_->Now(),
                                   link->fresh, request.tables.empty() ? 0 : request.tables[0].table,
                                   again ? 0 : request.seq, 0, request.inc, request.client, request.tell});
    }
  } catch (...) {
    while (taken > 0) parts[--taken].link->outstanding.pop_back();
    throw;
  }
  CountRequests(parts, requests, tables, out.bytes.size());
  for (const auto& [link, frame, part] : parts) {
    link->fresh = false;
    if (part != nullptr) link->waiting.pop_front();
    if (frame == nullptr) continue;
    link->sent_through = frame->seq;
    link->ever_sent = std::max(link->ever_sent, frame->seq);
  }
  transport_->Send(std::move(out));
  for (const Outgoing& sent : parts)
    sent.link->outstanding.back().connection = transport_->Connection(sent.link->partition);
}

void Client::CountRequests(const std::vector<Outgoing>& parts, const std::vector<Request>& requests,
                           const Vector<TableBytes>& tables, size_t bytes) {
  for (const TableBytes& size : tables) bytes -= size.all;  // heads are left
  size_t at = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool again = parts[i].frame != nullptr && parts[i].frame->seq <= parts[i].link->ever_sent;
    for (const TableRequest& t : requests[i].tables) {
      Counters& counters = caches_.at(t.table)->counters();
      ++counters.requests;
      counters.resends += again && !t.push_keys.empty();
      counters.checks += t.check_keys.size();
      counters.row_bytes_out += tables[at].rows;
      counters.metadata_bytes_out += tables[at].all - tables[at].rows + (at == 0 ? bytes : 0);
      ++at;
    }
  }
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
  HandleFrame(event);
}

void Client::HandleFrame(Transport::Event* event) {
  ReplyParts parts;
  Reply reply;
  Vector<TableBytes> tables;
  size_t bytes = 0;
  const auto& asked = links_[event->partition].outstanding;
  const uint32_t oldest = asked.empty() ? 0 : asked.front().frame;  // answered next, unless there is trouble
  uint32_t frame = 0;  // that this answers; 0: not known yet, or none that still waits
  Status read = parts.Open(Span<const uint8_t>(event->bytes.data(), event->bytes.size()));
  try {
    while (read.ok() && !parts.done()) {
      read = parts.Next(&reply, &tables, &bytes);
      if (!read.ok() || reply.partition >= links_.size()) break;
      if (reply.status == FrameStatus::kBadFrame && reply.request_id == 0 && !asked.empty()) {
        // Who cannot read a frame does not know whose it is: it was the oldest one.
        reply.partition = event->partition;
        reply.request_id = asked.front().request_id;
      }
      Link* link = &links_[reply.partition];
      for (const Link::Outstanding& request : link->outstanding) {
        if (request.request_id == reply.request_id) frame = request.frame;
      }
      CountReply(*link, reply, bytes, tables);
      HandleReply(link, reply);
    }
  } catch (...) {
    GiveUpFrame(frame != 0 ? frame : oldest, "out of memory");
    throw;
  }
  if (read.ok() && parts.done()) {
    transport_->Recycle(std::move(event->bytes));
    return GiveUpFrame(frame, "a reply that does not fit its request");
  }
  Link* link = &links_[event->partition];
  if (frame == 0) frame = oldest;
  const std::string reason = "a damaged reply: " + read.message();
  transport_->Reset(link->partition);
  Failed(link, reason, true);
  GiveUpFrame(frame, reason);
}

// Parts of a frame that were not answered with the others.
void Client::GiveUpFrame(uint32_t frame, const std::string& reason) {
  for (Link& link : links_) {
    if (std::any_of(link.outstanding.begin(), link.outstanding.end(),
                    [frame](const Link::Outstanding& request) { return request.frame == frame; })) {
      Failed(&link, reason, true);
    }
  }
}

void Client::CountReply(const Link& link, const Reply& reply, size_t bytes,
                        const Vector<TableBytes>& tables) {
  size_t head = bytes;
  for (size_t i = 0; i < tables.size(); ++i) {
    head -= tables[i].all;
    const auto cache = caches_.find(reply.tables[i].table);
    if (cache == caches_.end()) continue;
    cache->second->counters().row_bytes_in += tables[i].rows;
    cache->second->counters().metadata_bytes_in += tables[i].all - tables[i].rows;
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
  switch (reply.status) {  // what no partition has said
    case FrameStatus::kElsewhere:
      link->alone = true;
      link->resend = true;
      return Requeue(link, request.part);
    case FrameStatus::kBusy:
      Requeue(link, request.part);
      return Failed(link, reply.message, false);
    default:
      break;
  }
  // A frame that was not read says nothing of the partition's life.
  const uint64_t inc = reply.status == FrameStatus::kBadFrame ? link->inc
                       : reply.same_inc                       ? request.inc
                                                              : reply.inc;

  // What the partition has of an identity that was given up says nothing about the new one's frames.
  if (!(request.client == link->client)) return Requeue(link, request.part);
  // Late, unless nothing else was on its way: then two servers have changed places and back, and the
  // partition is the one that it was. It is asked once more to find out.
  if (link->past_incs.count(inc) != 0 && !request.fresh) {
    link->resend = true;
    return Requeue(link, request.part);
  }
  if (inc != link->inc) {
    if (link->inc != 0) {
      link->past_incs.erase(inc);
      link->past_incs.insert(link->inc);
      link->inc = inc;
      Reborn(link, reply.last_seq);
      return Requeue(link, request.part);
    }
    link->inc = inc;
  }

  switch (reply.status) {
    case FrameStatus::kOk: {
      link->failures = 0;
      link->not_before = 0;
      link->last_failure.clear();
      const bool late = reply.last_seq < link->log.applied();
      Acknowledge(link, reply.last_seq);
      if (request.seq != 0 && reply.last_seq >= request.seq) {
        link->written = request.seq;
        link->written_on = request.connection;
      }
      if (request.part == nullptr || request.part->op == nullptr) return;
      // An answer from before frames that are no longer kept cannot be brought up to date.
      if (late && reply.last_seq < link->log.durable()) return Requeue(link, request.part);
      // Older than what was taken in already: it would take rows back.
      if (request.told && !reply.told_reset && reply.told <= link->told) return Requeue(link, request.part);
      if (!AnswersRequest(reply, *request.part)) {
        Requeue(link, request.part);
        transport_->Reset(link->partition);
        return Failed(link, "a reply that does not fit its request", true);
      }
      try {
        return HandleAnswer(link, reply, request.part, request.told);
      } catch (...) {
        Requeue(link, request.part);
        throw;
      }
    }
    case FrameStatus::kGap:
      if (reply.last_seq < link->log.applied() && request.fresh) {
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
    case FrameStatus::kNoTable: {
      // Somebody has dropped it: what is left of it here goes, and the other tables go on.
      const Status refused = FailedPrecondition("partition " + std::to_string(link->partition) +
                                                " refuses this client: " + reply.message);
      // Rows that were only read ahead are no trouble of the call that is running.
      const ReadOp* op = request.part == nullptr ? nullptr : request.part->op;
      if (op == nullptr || !op->ahead || link->log.unapplied()) rejected_ = refused;
      for (const TableReply& t : reply.tables) {
        const auto cache = caches_.find(t.table);
        if (cache != caches_.end()) DropTablePart(link, cache->second.get());
        link->epochs.erase(t.table);
      }
      Acknowledge(link, reply.last_seq);
      link->resend = true;
      if (request.part != nullptr) Fail(request.part.get(), refused);
      return;
    }
    case FrameStatus::kElsewhere:
    case FrameStatus::kBusy:
    case FrameStatus::kWrongPartition:
    case FrameStatus::kBadFrame:
      link->fatal = FailedPrecondition("partition " + std::to_string(link->partition) +
                                       " refuses this client: " + reply.message);
      if (request.part != nullptr) Fail(request.part.get(), link->fatal);
      return;
  }
}

}  // namespace het
