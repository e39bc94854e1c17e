#include "benchmarks/traffic/counting_transport.h"

#include <cstdio>
#include <cstdlib>

namespace het::traffic {
namespace {

size_t VarintBytes(uint64_t value) {
  size_t bytes = 1;
  while (value >= 0x80) {
    value >>= 7;
    ++bytes;
  }
  return bytes;
}

size_t KeyRunBytes(const Vector<Key>& keys) {
  size_t bytes = 0;
  uint64_t before = 0;
  for (Key key : keys) {
    bytes += VarintBytes(ZigZag(static_cast<int64_t>(static_cast<uint64_t>(key) - before)));
    before = static_cast<uint64_t>(key);
  }
  return bytes;
}

size_t ClockBytes(const Vector<Clock>& clocks) {
  size_t bytes = 0;
  for (Clock clock : clocks) bytes += VarintBytes(ZigZag(clock));
  return bytes;
}

template <typename Numbers>
size_t NumberBytes(const Numbers& numbers) {
  size_t bytes = 0;
  for (const auto number : numbers) bytes += VarintBytes(number);
  return bytes;
}

void MustBe(bool true_, const char* what) {
  if (true_) return;
  fprintf(stderr, "traffic: %s\n", what);
  std::exit(1);
}

}  // namespace

uint64_t Counts::class_bytes() const {
  uint64_t bytes = check_bytes + head_bytes;
  for (const ClassBytes* of : {&miss_pull, &update_pull, &bound_push, &evict_push}) {
    bytes += of->row_bytes + of->key_bytes;
  }
  return bytes;
}

void Counts::ForEach(const std::function<void(const std::string&, uint64_t*)>& fn) {
  auto each = [&fn](const std::string& name, ClassBytes* of) {
    fn(name + ".rows", &of->rows);
    fn(name + ".absent", &of->absent);
    fn(name + ".row_bytes", &of->row_bytes);
    fn(name + ".key_bytes", &of->key_bytes);
  };
  each("miss_pull", &miss_pull);
  each("update_pull", &update_pull);
  each("bound_push", &bound_push);
  each("evict_push", &evict_push);
  fn("checks", &checks);
  fn("check_bytes", &check_bytes);
  fn("heads", &heads);
  fn("head_bytes", &head_bytes);
  fn("bytes_out", &bytes_out);
  fn("bytes_in", &bytes_in);
  fn("round_trips", &round_trips);
}

Counts& Counts::operator-=(Counts earlier) {
  std::map<std::string, uint64_t> other;
  earlier.ForEach([&other](const std::string& name, const uint64_t* value) { other[name] = *value; });
  ForEach([&other](const std::string& name, uint64_t* value) { *value -= other[name]; });
  return *this;
}

Counts& Counts::operator+=(Counts added) {
  std::map<std::string, uint64_t> other;
  added.ForEach([&other](const std::string& name, const uint64_t* value) { other[name] = *value; });
  ForEach([&other](const std::string& name, uint64_t* value) { *value += other[name]; });
  return *this;
}

void CountingTransport::Arrive() {
  for (Event& event : on_their_way_) arrived_.push_back(std::move(event));
  on_their_way_.clear();
}

void CountingTransport::Send(uint32_t partition, Bytes frame) {
  CountRequest(Span<const uint8_t>(frame.data(), frame.size()));
  Event event;
  event.partition = partition;
  service_->Handle(partition, Span<const uint8_t>(frame.data(), frame.size()), &event.bytes);
  CountReply(Span<const uint8_t>(event.bytes.data(), event.bytes.size()));
  on_their_way_.push_back(std::move(event));
}

bool CountingTransport::Poll(double seconds, std::vector<Event>* events) {
  if (arrived_.empty() && seconds > 0 && !on_their_way_.empty()) {
    ++counts_.round_trips;
    Arrive();
  }
  const bool any = !arrived_.empty();
  for (Event& event : arrived_) events->push_back(std::move(event));
  arrived_.clear();
  return any;
}

void CountingTransport::CountRequest(Span<const uint8_t> frame) {
  Request q;
  MustBe(Decode(frame, &q).ok(), "a request cannot be decoded");
  counts_.bytes_out += frame.size();
  ++counts_.heads;
  size_t head = 64 + VarintBytes(q.tables.size());
  size_t rest = 0;
  for (const TableRequest& t : q.tables) {
    head += 16 + VarintBytes(t.update_floats) + VarintBytes(t.push_keys.size()) +
            VarintBytes(t.bound == kUnbounded ? 0 : static_cast<uint64_t>(t.bound) + 1) +
            VarintBytes(t.check_keys.size()) + VarintBytes(t.fetch_keys.size());
    if (!t.push_keys.empty()) {
      // The client puts rows that reached their bound and rows that left the cache into different frames.
      const bool bound = written_.count(t.push_keys[0]) != 0;
      for (Key key : t.push_keys) {
        MustBe((written_.count(key) != 0) == bound, "a frame holds rows of two classes");
      }
      ClassBytes* push = bound ? &counts_.bound_push : &counts_.evict_push;
      push->rows += t.push_keys.size();
      push->row_bytes += t.push_updates.size() * sizeof(float);
      const size_t keys = KeyRunBytes(t.push_keys) + NumberBytes(t.push_ticks);
      push->key_bytes += keys;
      rest += keys + t.push_updates.size() * sizeof(float);
    }
    const size_t checks = KeyRunBytes(t.check_keys) + ClockBytes(t.check_clocks);
    counts_.checks += t.check_keys.size();
    counts_.check_bytes += checks;
    const size_t fetches = KeyRunBytes(t.fetch_keys);
    counts_.miss_pull.key_bytes += fetches;
    rest += checks + fetches;
  }
  counts_.head_bytes += head;
  MustBe(head + rest == frame.size(), "the parts of a request do not add up to it");
}

void CountingTransport::CountReply(Span<const uint8_t> frame) {
  Reply p;
  MustBe(Decode(frame, &p).ok(), "a reply cannot be decoded");
  counts_.bytes_in += frame.size();
  ++counts_.heads;
  size_t head = 28 + VarintBytes(p.message.size()) + p.message.size() + VarintBytes(p.tables.size());
  size_t rest = 0;
  for (const TableReply& t : p.tables) {
    head += 16 + VarintBytes(t.row_floats) + VarintBytes(t.refreshed.size()) +
            VarintBytes(t.fetched_clocks.size());
    auto rows = [&](const Vector<Clock>& clocks, size_t key_bytes, ClassBytes* of) {
      size_t present = 0;
      for (Clock clock : clocks) present += clock != 0;
      of->rows += clocks.size();
      of->absent += clocks.size() - present;
      of->row_bytes += present * t.row_floats * sizeof(float);
      of->key_bytes += key_bytes + ClockBytes(clocks);
      rest += present * t.row_floats * sizeof(float) + key_bytes + ClockBytes(clocks);
    };
    rows(t.refreshed_clocks, NumberBytes(t.refreshed), &counts_.update_pull);
    rows(t.fetched_clocks, 0, &counts_.miss_pull);
    const size_t lags = VarintBytes(t.lag_histogram.size()) + NumberBytes(t.lag_histogram);
    counts_.check_bytes += lags;
    rest += lags;
  }
  counts_.head_bytes += head;
  MustBe(head + rest == frame.size(), "the parts of a reply do not add up to it");
}

}  // namespace het::traffic
