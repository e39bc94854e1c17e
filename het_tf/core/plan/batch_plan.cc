#include "het_tf/core/plan/batch_plan.h"

#include <algorithm>
#include <cstring>

#include "het_tf/core/wire/layout.h"

namespace het {
namespace {

// Ids that one task scatters.
constexpr size_t kChunkIds = 8192;
// A smaller step is done before a second thread has woken up.
constexpr size_t kParallelIds = 16384;

// Ids of one feature that one task sorts.
struct IdChunk {
  uint32_t feature;
  size_t begin;  // index of the feature's ids
  size_t end;
  size_t scratch;  // index of its ids in partition_of_
};

Vector<IdChunk> ChunksOf(Span<const FeatureIds> features, size_t* ids) {
  Vector<IdChunk> chunks;
  *ids = 0;
  for (uint32_t f = 0; f < features.size(); ++f) {
    const size_t n = features[f].ids.size();
    for (size_t begin = 0; begin < n; begin += kChunkIds) {
      const size_t end = std::min(n, begin + kChunkIds);
      chunks.push_back({f, begin, end, *ids});
      *ids += end - begin;
    }
  }
  return chunks;
}

// Notes the partition of every id of a chunk, and counts each partition's ids, without padding.
void CountChunk(const FeatureIds& feature, const IdChunk& chunk, const TableLayout& layout,
                uint16_t* partition_of, size_t* counts) {
  const Key padding = feature.padding_id.value_or(0);
  const bool has_padding = feature.padding_id.has_value();
  std::fill_n(counts, layout.partitions(), 0);
  for (size_t i = chunk.begin; i < chunk.end; ++i) {
    const Key key = feature.ids[i];
    const uint32_t p = layout.OfKey(key);
    partition_of[i - chunk.begin] = static_cast<uint16_t>(p);
    counts[p] += !(has_padding && key == padding);
  }
}

// Sets first and entries of the groups of partition p, which begin at `at`, and turns the counts of the
// chunks into the begin of each chunk's part of its group. counts: one every `stride`. Returns the end.
size_t PlaceGroups(Span<const FeatureIds> features, const Vector<IdChunk>& chunks, uint32_t tables, size_t at,
                   size_t stride, size_t* counts, BatchPlan::Group* groups) {
  for (size_t c = 0; c < chunks.size(); ++c) {
    groups[features[chunks[c].feature].table].entries += counts[c * stride];
  }
  for (uint32_t t = 0; t < tables; ++t) {
    groups[t].first = at;
    at += groups[t].entries;
    groups[t].uniques = groups[t].first;  // temporarily: begin of the next chunk's part
  }
  for (size_t c = 0; c < chunks.size(); ++c) {
    BatchPlan::Group& group = groups[features[chunks[c].feature].table];
    const size_t count = counts[c * stride];
    counts[c * stride] = group.uniques;
    group.uniques += count;
  }
  for (uint32_t t = 0; t < tables; ++t) groups[t].uniques = 0;
  return at;
}

}  // namespace

void BatchPlan::Scatter(Span<const FeatureIds> features, Span<const uint64_t> table_ids,
                        const PartitionId& store, ThreadPool* pool) {
  const uint32_t partitions = store.count;
  const auto tables = static_cast<uint32_t>(table_ids.size());
  const Layout layout(store);
  tables_ = tables;
  hash_seed_ = store.hash_seed;
  total_ = 0;
  groups_.assign(static_cast<size_t>(partitions) * tables, Group());
  size_t ids = 0;
  const Vector<IdChunk> chunks = ChunksOf(features, &ids);
  entries_.Resize(ids);
  inverse_.Resize(ids);
  entry_keys_.Resize(ids);
  keys_.Resize(ids);
  hashes_.Resize(ids);
  rows_.Resize(ids);
  partition_of_.Resize(ids);
  // Chunks' counters must not share cache lines: such a line would bounce between cores.
  const size_t stride = (partitions + 7) / 8 * 8 + 8;
  offsets_.Resize(chunks.size() * stride);
  ThreadPool* const threads = ids >= kParallelIds ? pool : nullptr;
  ForEach(threads, chunks.size(), [&](size_t c) {
    const FeatureIds& feature = features[chunks[c].feature];
    CountChunk(feature, chunks[c], layout.OfTable(table_ids[feature.table]),
               partition_of_.data() + chunks[c].scratch, &offsets_[c * stride]);
  });
  size_t at = 0;
  for (uint32_t p = 0; p < partitions; ++p) {
    Group* const groups = &groups_[static_cast<size_t>(p) * tables];
    for (uint32_t t = 0; t < tables; ++t) groups[t] = Group{t, p, 0, 0, 0, 0};
    at = PlaceGroups(features, chunks, tables, at, stride, offsets_.data() + p, groups);
  }
  total_ = at;
  ForEach(threads, chunks.size(), [&](size_t c) {
    const IdChunk& chunk = chunks[c];
    const FeatureIds& feature = features[chunk.feature];
    const Key padding = feature.padding_id.value_or(0);
    const bool has_padding = feature.padding_id.has_value();
    size_t* const next = &offsets_[c * stride];
    const uint16_t* const partition_of = partition_of_.data() + chunk.scratch;
    for (size_t i = chunk.begin; i < chunk.end; ++i) {
      const Key key = feature.ids[i];
      if (has_padding && key == padding) continue;
      const size_t to = next[partition_of[i - chunk.begin]]++;
      entries_[to] = Entry{chunk.feature, static_cast<uint32_t>(i)};
      entry_keys_[to] = key;
    }
  });
}

void BatchPlan::Build(Span<const FeatureIds> features, Span<const uint64_t> tables, const PartitionId& store,
                      ThreadPool* pool) {
  Scatter(features, tables, store, pool);
  ForEach(total_ >= kParallelIds ? pool : nullptr, groups_.size(), [&](size_t g) { Unique(&groups_[g]); });
}

void BatchPlan::Unique(Group* group) {
  // An open-addressing table of unique numbers; 0: empty. Each thread keeps one.
  thread_local Buffer<uint32_t> slots;
  size_t capacity = 16;
  while (capacity < 2 * group->entries) capacity *= 2;
  uint32_t* const slot = slots.Resize(capacity);
  std::memset(slot, 0, capacity * sizeof(uint32_t));
  const size_t mask = capacity - 1;

  const Key* in = entry_keys_.data() + group->first;
  Key* const keys = keys_.data() + group->first;
  uint64_t* const hashes = hashes_.data() + group->first;
  uint32_t* const inverse = inverse_.data() + group->first;
  uint32_t uniques = 0;
  for (size_t e = 0; e < group->entries; ++e) {
    const Key key = in[e];
    const uint64_t hash = HashKey(key, hash_seed_);
    size_t at = (hash >> 32) & mask;
    for (;; at = (at + 1) & mask) {
      const uint32_t number = slot[at];
      if (number == 0) {
        keys[uniques] = key;
        hashes[uniques] = hash;
        inverse[e] = uniques;
        slot[at] = ++uniques;
        break;
      }
      if (keys[number - 1] == key) {
        inverse[e] = number - 1;
        break;
      }
    }
  }
  group->uniques = uniques;
}

}  // namespace het
