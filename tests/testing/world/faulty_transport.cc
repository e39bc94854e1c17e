#include "tests/testing/world/faulty_transport.h"

#include <utility>
#include <vector>

#include "tests/testing/fits_in.h"

namespace het::testing {

FaultyTransport::FaultyTransport(LocalService* service, uint64_t seed, uint32_t shards)
    : service_(service), random_(seed), shards_(shards == 0 ? service->partitions() : shards) {
  connections_.resize(shards_);
}

void FaultyTransport::Cut(uint32_t p, size_t applied) {
  Line& c = LineOf(p);
  for (; applied > 0 && !c.requests.empty(); --applied) {
    Answer(p, c.requests.front());
    c.requests.pop_front();
  }
  c.requests.clear();
  c.replies.clear();
  c.dead = true;
  c.number = 0;
  for (uint32_t one : c.used) c.replies.push_back(Closed(one));
  if (c.used.count(p) == 0) c.replies.push_back(Closed(p));
}

void FaultyTransport::PartitionMoved(uint32_t p) {
  for (auto& [partition, requests] : ghosts_) {
    if (Shard(partition) == Shard(p)) requests.clear();
  }
  if (!LineOf(p).used.empty()) Cut(p);
}

void FaultyTransport::Count(const OutFrame& frame) {
  RequestParts parts;
  if (!parts.Open(frame.view()).ok()) std::abort();
  while (parts.left() > 0) {
    Request request;
    if (!parts.Next(&request).ok()) std::abort();
    uint64_t& last = sent_seq_[{request.partition.index, request.client}];
    const bool again = request.seq != 0 && request.seq <= last;
    last = std::max(last, request.seq);
    for (const TableRequest& t : request.tables) {
      Sent& of = sent[t.table];
      ++of.requests;
      of.checks += t.check_clocks.size();
      of.resends += again && t.pushes() > 0;
      of.pushed += again ? 0 : t.pushes();
    }
  }
}

void FaultyTransport::Send(OutFrame frame) {
  Count(frame);
  if (record) recorded.push_back(frame);
  Line& c = LineOf(frame.parts[0].partition);
  for (const PartRef& part : frame.parts) c.used.insert(part.partition);
  many_parts_ += frame.parts.size() > 1;
  if (c.number == 0 && !c.dead) {
    c.number = ++last_number_;
    c.wrote = false;
  }
  if (!c.dead) c.requests.push_back(std::move(frame));
}

bool FaultyTransport::Poll(double seconds, std::vector<Event>* events) {
  const size_t before = events->size();
  if (!ghosts_.empty() && random_.Chance(0.2)) ServeGhost();
  for (uint32_t shard = 0; shard < shards_; ++shard) {
    const uint32_t p = (shard * service_->partitions() + shards_ - 1) / shards_;  // its first partition
    Line& c = LineOf(p);
    while (!c.requests.empty() && !c.hold_requests && !c.silent && !random_.Chance(faults.delay)) {
      ServeFront(p, /*by_chance=*/true);
    }
    while (!c.replies.empty() && !c.hold_replies && now_ >= c.replies_held_until &&
           !random_.Chance(faults.delay)) {
      if (c.replies.front().kind == Event::kClosed) c.dead = false;
      events->push_back(std::move(c.replies.front()));
      c.replies.pop_front();
      if (seconds_a_reply > 0) c.replies_held_until = now_ + seconds_a_reply;
    }
  }
  if (events->size() > before) return true;
  now_ += seconds;
  return false;
}

void FaultyTransport::Reset(uint32_t p) {
  Line& c = LineOf(p);
  if (!c.requests.empty()) ghosts_.emplace_back(p, std::move(c.requests));
  c.requests.clear();
  c.replies.clear();
  c.dead = false;
  c.silent = false;
  c.number = 0;
  for (uint32_t one : c.used) {
    if (one != p) c.replies.push_back(Closed(one));
  }
}

void FaultyTransport::AskReplicas(const std::vector<Mark>& marks, uint32_t replicas, double) {
  for (const Mark& mark : marks) {
    Line& c = LineOf(mark.partition);
    Event event;
    event.kind = Event::kReplicas;
    event.partition = mark.partition;
    event.seq = mark.seq;
    event.replicas = c.wrote && !replicate(mark.partition) ? replicas - 1 : replicas;
    c.replies.push_back(std::move(event));
  }
}

FaultyTransport::Event FaultyTransport::Closed(uint32_t p) {
  Event event;
  event.kind = Event::kClosed;
  event.partition = p;
  event.reason = "connection reset by the test";
  return event;
}

Bytes FaultyTransport::Answer(uint32_t p, const OutFrame& frame) {
  Bytes reply;
  LetHandle(frame, [&] { Handle(p, frame, &reply); });
  return reply;
}

void FaultyTransport::LetHandle(const OutFrame& frame, const std::function<void()>& handle) {
  frame.push ? pushes(handle) : handle();
}

void FaultyTransport::Handle(uint32_t p, const OutFrame& frame, Bytes* reply) {
  ++served_;
  const auto applied = [&] {
    return service_->WithPartition(
        p, [&](Partition& partition) { return partition.clients().LastSeq(sender_); });
  };
  Line& c = LineOf(p);
  if (frame.parts.size() > 1) {
    c.wrote = c.wrote || frame.push;
    AnswerFrame(frame.view(), reply, [&](Request* q, ReplyWriter* replies) {
      if (omit == q->partition.index) {
        omit.reset();
        return;
      }
      if (!random_.Chance(faults.part)) return service_->HandlePart(q, replies);
      const PartRef part{q->partition.index, q->request_id};
      replies->Add(random_.Chance(0.5) ? PartRefusal(part, FrameStatus::kElsewhere, "")
                                       : PartRefusal(part, FrameStatus::kBusy, "LOADING by chance"));
    });
    return;
  }
  Request request;
  static_cast<void>(Decode(frame.view(), &request));
  sender_ = request.client;
  p = frame.parts[0].partition;
  const uint64_t before = applied();
  service_->Handle(frame.view(), reply);
  c.wrote = c.wrote || applied() != before;
}

void FaultyTransport::AnswerWithin(size_t room, const OutFrame& frame, Event* event) {
  LetHandle(frame, [&] {
    if (FitsIn(room, [&] { Handle(event->partition, frame, &event->bytes); })) return;
    event->kind = Event::kRefused;
    event->reason = "no memory at all";
  });
}

void FaultyTransport::Refuse(const OutFrame& frame, Event event) {
  for (const PartRef& part : frame.parts) {
    event.partition = part.partition;
    event.request_id = frame.parts.size() > 1 ? part.request_id : 0;
    LineOf(part.partition).replies.push_back(event);
  }
}

void FaultyTransport::ServeGhost() {
  auto& [p, requests] = ghosts_.front();
  if (!requests.empty()) {
    Answer(p, requests.front());
    requests.pop_front();
  }
  if (requests.empty()) ghosts_.pop_front();
}

void FaultyTransport::ServeFront(uint32_t p, bool by_chance) {
  Line& c = LineOf(p);
  auto chance = [&](double probability) { return by_chance && random_.Chance(probability); };
  if (chance(faults.silence)) {
    c.silent = true;
    return;
  }
  if (chance(faults.cut)) return Cut(p, random_.Below(c.requests.size() + 1));
  const OutFrame frame = std::move(c.requests.front());
  c.requests.pop_front();
  Event event;
  event.partition = frame.parts[0].partition;
  if (chance(faults.refuse)) {
    event.kind = Event::kRefused;
    event.reason = "LOADING the test is loading";
    return Refuse(frame, event);
  }
  if (chance(faults.out_of_memory)) {
    AnswerWithin(random_.Below(2 * frame.bytes.size() + 2000), frame, &event);
  } else {
    event.bytes = Answer(p, frame);
  }
  if (event.kind == Event::kRefused) return Refuse(frame, event);
  if (chance(faults.duplicate_request)) {
    c.replies.push_back(event);
    event.bytes = Answer(p, frame);
  }
  if (chance(faults.lose_reply)) return Cut(p, random_.Below(c.requests.size() + 1));
  if (chance(faults.duplicate_reply)) c.replies.push_back(event);
  c.replies.push_back(std::move(event));
}

}  // namespace het::testing
