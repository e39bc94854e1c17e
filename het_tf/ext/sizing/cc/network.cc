#include "het_tf/ext/sizing/cc/network.h"

#include "het_tf/core/base/cpu_seconds.h"
#include "het_tf/core/wire/parts.h"

namespace het {
namespace {

template <typename Fn>
void ForEach(NetworkCounts* to, const NetworkCounts& from, Fn fn) {
  for (FrameCounts NetworkCounts::*kind :
       {&NetworkCounts::pushes, &NetworkCounts::reads, &NetworkCounts::replies}) {
    fn(&(to->*kind).frames, (from.*kind).frames);
    fn(&(to->*kind).parts, (from.*kind).parts);
    fn(&(to->*kind).bytes, (from.*kind).bytes);
  }
  fn(&to->round_trips, from.round_trips);
}

void Count(FrameCounts* counts, size_t parts, size_t bytes) {
  ++counts->frames;
  counts->parts += parts;
  counts->bytes += bytes;
}

}  // namespace

NetworkCounts& NetworkCounts::operator+=(const NetworkCounts& other) {
  ForEach(this, other, [](uint64_t* to, uint64_t from) { *to += from; });
  return *this;
}

NetworkCounts& NetworkCounts::operator-=(const NetworkCounts& other) {
  ForEach(this, other, [](uint64_t* to, uint64_t from) { *to -= from; });
  return *this;
}

void ReplayNetwork::Arrive() {
  for (Event& event : on_their_way_) arrived_.push_back(std::move(event));
  on_their_way_.clear();
}

void ReplayNetwork::Send(OutFrame frame) {
  RequestParts parts;
  if (!parts.Open(frame.view()).ok()) return;  // no client sends such frames: they get no answer
  Count(parts.pushes() ? &traffic_.pushes : &traffic_.reads, parts.size(), frame.view().size());
  SeeRequest(frame.view());
  Event event;
  event.partition = frame.parts[0].partition;
  {
    const CpuSeconds cpu(&store_seconds_);
    service_->Handle(frame.view(), &event.bytes);
  }
  Count(&traffic_.replies, parts.size(), event.bytes.size());
  SeeReply(Span<const uint8_t>(event.bytes.data(), event.bytes.size()));
  on_their_way_.push_back(std::move(event));
}

bool ReplayNetwork::Poll(double seconds, std::vector<Event>* events) {
  if (arrived_.empty() && seconds > 0 && !on_their_way_.empty()) {
    ++traffic_.round_trips;
    Arrive();
  }
  const bool any = !arrived_.empty();
  for (Event& event : arrived_) events->push_back(std::move(event));
  arrived_.clear();
  return any;
}

}  // namespace het
