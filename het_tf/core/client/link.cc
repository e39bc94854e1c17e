#include "het_tf/core/client/link.h"

#include <algorithm>

namespace het {

int64_t PushFrame::Section::Position(Key key) {
  if (by_key.size() != keys.size()) {
    by_key.clear();
    by_key.reserve(keys.size());
    for (uint32_t i = 0; i < keys.size(); ++i) by_key.push_back({keys[i], i});
    std::sort(by_key.begin(), by_key.end());
  }
  const auto it = std::lower_bound(by_key.begin(), by_key.end(), std::pair<Key, uint32_t>(key, 0));
  return it == by_key.end() || it->first != key ? -1 : static_cast<int64_t>(it->second);
}

const float* PushFrame::Section::update(size_t position) const {
  return wire.data() + position * cache->schema().optimizer().wire_floats();
}

PushFrame::Section* PushFrame::Of(const TableCache* cache) {
  for (Section& section : sections) {
    if (section.cache == cache) return &section;
  }
  return nullptr;
}

size_t PushFrame::bytes() const {
  size_t sum = sizeof(PushFrame);
  for (const Section& section : sections) {
    sum += sizeof(Section) + section.wire.size() * sizeof(float) +
           section.keys.size() * (sizeof(Key) + sizeof(uint32_t) + sizeof(section.by_key[0]));
  }
  return sum;
}

std::deque<PushFrame>::iterator Link::After(uint64_t seq) {
  if (frames.empty() || seq < frames.front().seq) return frames.begin();
  return frames.begin() +
         static_cast<ptrdiff_t>(std::min<uint64_t>(frames.size(), seq - frames.front().seq + 1));
}

void Link::SetApplied(uint64_t seq) {
  const auto [from, to] = std::minmax(applied, seq);
  size_t between = 0;
  for (auto frame = After(from); frame != frames.end() && frame->seq <= to; ++frame)
    between += frame->bytes();
  kept_bytes = seq > applied ? kept_bytes + between : kept_bytes - std::min(kept_bytes, between);
  applied = seq;
}

void Link::ForgetThrough(uint64_t seq) {
  for (; !frames.empty() && frames.front().seq <= seq; frames.pop_front()) {
    kept_bytes -= std::min(kept_bytes, frames.front().bytes());
  }
  durable = std::max(durable, seq);
}

void Link::Renumber(ClientId id) {
  client = id;
  const uint64_t unsent = next_seq - 1 - ever_sent;
  next_seq = 1;
  for (PushFrame& frame : frames) frame.seq = next_seq++;
  ever_sent = next_seq - 1 - std::min(unsent, next_seq - 1);
  applied = 0;
  durable = 0;
  kept_bytes = 0;
  sent_through = 0;
  written = 0;
  written_on = 0;
  asked_on = 0;
  told = 0;
}

}  // namespace het
