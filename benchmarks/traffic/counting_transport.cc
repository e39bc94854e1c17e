#include "benchmarks/traffic/counting_transport.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "het_tf/core/wire/frame_bytes.h"

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

template <typename Write>
size_t BytesOf(Write write) {
  Bytes bytes;
  Writer writer(&bytes);
  write(&writer);
  return bytes.size();
}

template <typename Keys>
size_t KeyBytes(const Keys& keys) {
  return BytesOf([&](Writer* w) { WriteAscending(keys, w); });
}

// As they travel, with their names if there are some.
template <typename Keys>
size_t ListBytes(const Vector<uint32_t>& names, const Keys& keys) {
  return names.empty() ? KeyBytes(keys) : BytesOf([&](Writer* w) { frame::WriteNamed(names, keys, w); });
}

size_t ClockBytes(const Vector<Clock>& clocks) {
  size_t bytes = 0;
  for (Clock clock : clocks) bytes += VarintBytes(static_cast<uint64_t>(clock));
  return bytes;
}

template <typename Numbers>
size_t NumberBytes(const Numbers& numbers) {
  size_t bytes = 0;
  for (const auto number : numbers) bytes += VarintBytes(number);
  return bytes;
}

// The bytes of one of the n names that take `all` bytes together.
size_t ShareOf(size_t all, size_t i, size_t n) { return all * (i + 1) / n - all * i / n; }

// Of rows that were rounded when they were packed: packing them once more takes as much.
size_t RowBytes(RowFormat format, size_t block, size_t floats, const float* rows, size_t count) {
  if (format == RowFormat::kFloat32) return count * floats * sizeof(float);
  Bytes bytes;
  Writer writer(&bytes);
  for (size_t i = 0; i < count; ++i, rows += floats) PackRows({format}, block, floats, &rows, 1, &writer);
  return bytes.size();
}

// What a frame says once: its head, and each of its tables.
size_t HeadBytes(const Request& first, size_t parts) {
  return 4 + 1 + 1 + 4 + VarintBytes(first.partition.count) + 8 + 16 + VarintBytes(parts);
}
size_t SpecBytes(const TableRequest& t) {
  const bool bounded = t.bound.most != kUnbounded;
  return 8 + VarintBytes(t.update_floats) +
         VarintBytes(bounded ? static_cast<uint64_t>(t.bound.most) + 1 : 0) + VarintBytes(t.bound.every) +
         (t.bound.every == 0 ? 0 : VarintBytes(t.bound.early) + VarintBytes(t.bound.from)) + 1 +
         (t.block == 0 ? 0 : VarintBytes(t.block)) + VarintBytes(2 * uint64_t{t.ring} + t.anew);
}
constexpr size_t kReplyHeadBytes = 4 + 1 + 4;
size_t SpecBytes(const TableReply& t) {
  return 8 + VarintBytes(t.row_floats) + 1 + (t.block == 0 ? 0 : VarintBytes(t.block));
}

void MustBe(bool true_, const char* what) {
  if (true_) return;
  fprintf(stderr, "traffic: %s\n", what);
  std::exit(1);
}

}  // namespace

uint64_t Counts::class_bytes() const {
  uint64_t bytes = check_bytes + moved_bytes + left_bytes + frame_bytes + part_bytes;
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
  fn("moved_bytes", &moved_bytes);
  fn("left_bytes", &left_bytes);
  fn("frames", &frames);
  fn("parts", &parts);
  fn("frame_bytes", &frame_bytes);
  fn("part_bytes", &part_bytes);
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

Counts CountingTransport::counts() const {
  Counts counts = counts_;
  counts.round_trips = traffic().round_trips;
  return counts;
}

void CountingTransport::CountFrame(size_t size, size_t parts, size_t once, size_t sections) {
  ++counts_.frames;
  counts_.parts += parts;
  // What heads of parts can take at most: numbers in full, and what each says of two tables.
  MustBe(once + sections < size && size - sections - once <= parts * 120,
         "the sections of a frame do not add up to it");
  counts_.frame_bytes += once;
  counts_.part_bytes += size - sections - once;
}

void CountingTransport::SeeRequest(Span<const uint8_t> frame) {
  RequestParts parts;
  MustBe(parts.Open(frame).ok(), "a request cannot be read");
  counts_.bytes_out += frame.size();
  size_t sections = 0;
  size_t once = 0;
  std::set<std::tuple<uint64_t, uint32_t, bool>> tables;
  fetched_.clear();
  while (parts.left() > 0) {
    Request q;
    MustBe(parts.Next(&q).ok(), "a part of a request cannot be read");
    if (once == 0) once = HeadBytes(q, parts.size());
    for (TableRequest& t : q.tables) {
      if (tables.insert({t.table, t.ring, t.anew}).second) once += SpecBytes(t);
      if (t.ring != 0) Complete(q.partition.index, &t);
      sections += CountTable(t);
      fetched_[{q.partition.index, t.table}] = t.fetch_keys;
    }
  }
  CountFrame(frame.size(), parts.size(), once, sections);
}

void CountingTransport::Complete(uint32_t partition, TableRequest* t) {
  auto ring = rings_.find({partition, t->table});
  if (t->anew) {
    if (ring != rings_.end()) rings_.erase(ring);
    ring = rings_.try_emplace({partition, t->table}, t->ring, t->ring).first;
  }
  MustBe(ring != rings_.end() &&
             CompleteKeys(ring->second, ring->second.appended(), t->names.push, &t->push_keys) &&
             CompleteKeys(ring->second, ring->second.appended(), t->names.check, &t->check_keys) &&
             CompleteKeys(ring->second, ring->second.appended(), t->names.fetch, &t->fetch_keys) &&
             CompleteKeys(ring->second, ring->second.appended(), t->names.dropped, &t->dropped),
         "keys that nobody has named");
  AppendInFull(*t, &ring->second);
}

size_t CountingTransport::CountPush(const TableRequest& t) {
  const size_t n = t.push_keys.size();
  if (n == 0) return 0;
  const Span<const Key> keys = t.push_keys;
  const size_t names = ListBytes(t.names.push, keys.subspan(0, n - t.left)) +
                       KeyBytes(keys.subspan(n - t.left, t.left)) +
                       BytesOf([&](Writer* w) { frame::WriteTicks(t.push_ticks, w); });
  size_t sections = names;
  Reader updates(t.packed_updates);
  Vector<float> update(t.update_floats);
  for (size_t i = 0; i < n; ++i) {
    ClassBytes* const push = written_.count(keys[i]) != 0 ? &counts_.bound_push : &counts_.evict_push;
    const size_t left = updates.left();
    MustBe(UnpackRow(t.push_format, t.block, t.update_floats, &updates, update.data()),
           "an update cannot be read");
    const size_t row = left - updates.left();
    ++push->rows;
    push->row_bytes += row;
    push->key_bytes += ShareOf(names, i, n);
    sections += row;
  }
  return sections;
}

size_t CountingTransport::CountTable(const TableRequest& t) {
  const size_t checks = ListBytes(t.names.check, t.check_keys) + ClockBytes(t.check_clocks);
  const size_t left = ListBytes(t.names.dropped, t.dropped);
  counts_.checks += t.check_keys.size();
  counts_.check_bytes += checks;
  counts_.left_bytes += left;
  const size_t fetches = ListBytes(t.names.fetch, t.fetch_keys);
  for (size_t i = 0; i < t.fetch_keys.size(); ++i) {
    ClassBytes* const pull = cached(t.fetch_keys[i]) ? &counts_.update_pull : &counts_.miss_pull;
    pull->key_bytes += ShareOf(fetches, i, t.fetch_keys.size());
  }
  return CountPush(t) + checks + left + fetches;
}

void CountingTransport::SeeReply(Span<const uint8_t> frame) {
  ReplyParts parts;
  MustBe(parts.Open(frame).ok(), "a reply cannot be read");
  counts_.bytes_in += frame.size();
  size_t sections = 0;
  size_t once = kReplyHeadBytes;
  std::set<uint64_t> tables;
  size_t count = 0;
  for (; !parts.done(); ++count) {
    Reply p;
    MustBe(parts.Next(&p).ok(), "a part of a reply cannot be read");
    for (TableReply& t : p.tables) {
      if (!t.notified_names.empty()) {
        const NamedKeys& ring = rings_.at({p.partition, t.table});
        MustBe(CompleteKeys(ring, ring.appended(), t.notified_names, &t.notified_keys), "an unknown name");
      }
      if (tables.insert(t.table).second) once += SpecBytes(t);
      sections += CountTable(t, fetched_[{p.partition, t.table}]);
    }
  }
  CountFrame(frame.size(), count, once, sections);
}

size_t CountingTransport::CountTable(const TableReply& t, const Vector<Key>& fetched) {
  size_t sections = 0;
  const float* next = t.rows.data();
  auto row = [&](Clock clock, size_t clock_bytes, ClassBytes* of) {
    const size_t bytes = clock == 0 ? 0 : RowBytes(t.row_format, t.block, t.row_floats, next, 1);
    if (clock != 0) next += t.row_floats;
    ++of->rows;
    of->absent += clock == 0;
    of->row_bytes += bytes;
    of->key_bytes += clock_bytes;
    sections += bytes + clock_bytes;
  };
  for (const Clock lag : t.refreshed_lags) row(lag, 0, &counts_.update_pull);
  const size_t refreshed =
      KeyBytes(t.refreshed) + BytesOf([&](Writer* w) { frame::WriteLags(t.refreshed_lags, w); });
  counts_.update_pull.key_bytes += refreshed;
  MustBe(t.fetched_clocks.size() <= fetched.size(), "rows that nobody has fetched");
  for (size_t i = 0; i < t.fetched_clocks.size(); ++i) {
    row(t.fetched_clocks[i], VarintBytes(static_cast<uint64_t>(t.fetched_clocks[i])),
        cached(fetched[i]) ? &counts_.update_pull : &counts_.miss_pull);
  }
  MustBe(next == t.rows.data() + t.rows.size(), "rows of no class");
  const size_t names = ListBytes(t.notified_names, t.notified_keys);
  size_t lags = NumberBytes(t.lag_histogram);
  if (lags > 0) lags += VarintBytes(t.lag_histogram.size());
  counts_.check_bytes += lags;
  counts_.moved_bytes += names;
  return sections + refreshed + lags + names;
}

}  // namespace het::traffic
