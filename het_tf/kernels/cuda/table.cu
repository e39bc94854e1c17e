#include <utility>
#include <vector>

#include "het_tf/kernels/cuda/optimizers.h"
#include "het_tf/kernels/cuda/table.h"
#include "het_tf/kernels/cuda/tile.h"

namespace het::dev {
namespace {

std::string NameOf(const HetDevTableConfig& config) {
  return std::string("table '") + (config.name == nullptr ? "" : config.name) + "'";
}

// Sections of a table's memory.
struct Sections {
  uint64_t buckets;
  uint64_t digests, slots, records, corrections;  // where each section begins
  uint64_t bytes;
};

// A table of the most rows and the widest ones takes less than 2^53 bytes.
Sections Plan(const HetDevTableConfig& config, uint64_t corrections) {
  if (config.capacity == 0) {
    Fail(HET_DEV_INVALID, NameOf(config) + ": capacity is 0 rows. Remedy: give it at least 1");
  }
  if (config.capacity > HET_DEV_MOST_ROWS) {
    Fail(HET_DEV_INVALID, NameOf(config) + ": capacity " + std::to_string(config.capacity) + "; at most " +
                              std::to_string(HET_DEV_MOST_ROWS) + " rows are possible");
  }
  Sections sections = {};
  sections.buckets = (config.capacity + kBucketSlots - 1) / kBucketSlots;
  const uint64_t rows = sections.buckets * kBucketSlots;
  const RecordLayout record = RecordOf(config.dim, config.row_floats, config.keep_updates != 0);
  const auto add = [&sections](uint64_t bytes) {
    return std::exchange(sections.bytes, sections.bytes + (bytes + 255) / 256 * 256);
  };
  sections.digests = add(rows);
  sections.slots = add(rows * sizeof(Slot));
  sections.records = add(rows * record.stride * sizeof(float));
  sections.corrections = add(corrections * sizeof(float));
  return sections;
}

struct HalveKernel {
  TableView table;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t bucket) const {
    Slot* slots = static_cast<Slot*>(table.slots) + bucket * kBucketSlots;
    tile.ForEach(kBucketSlots, [&](uint64_t i) { slots[i].used = HalfUsed(slots[i].used); });
  }
};

// Clears n slots, 32 an item.
struct ClearVisitsKernel {
  Dev<Slot> slots;
  uint64_t n;

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t item) const {
    tile.ForEach(kBucketSlots, [&](uint64_t i) {
      if (item * kBucketSlots + i < n) static_cast<Slot*>(slots)[item * kBucketSlots + i].used &= ~kVisitBits;
    });
  }
};

constexpr uint32_t kStripes = 64;
enum StateCount : uint32_t { kRows, kDirty, kInvalidRows, kSubscribedRows, kStateCounts };

struct CountKernel {
  TableView table;
  Dev<uint64_t> counts;  // [kStripes][kStateCounts]

  template <typename Tile>
  HET_DEV void operator()(const Tile& tile, uint64_t bucket) const {
    const uint8_t* digests = static_cast<uint8_t*>(table.digests) + bucket * kBucketSlots;
    const Slot* slots = static_cast<Slot*>(table.slots) + bucket * kBucketSlots;
    const uint32_t rows = ~tile.Match32(digests, 0);
    uint64_t* count = static_cast<uint64_t*>(counts) + bucket % kStripes * kStateCounts;
    tile.Once([&] { AtomicAdd(&count[kRows], static_cast<uint64_t>(CountBits(rows))); });
    tile.ForEach(kBucketSlots, [&](uint64_t i) {
      if ((rows >> i & 1) == 0) return;
      if (slots[i].ticks > 0) AtomicAdd(&count[kDirty], uint64_t{1});
      if ((slots[i].used & kInvalid) != 0) AtomicAdd(&count[kInvalidRows], uint64_t{1});
      if ((slots[i].used & kSubscribed) != 0) AtomicAdd(&count[kSubscribedRows], uint64_t{1});
    });
  }
};

}  // namespace

void ClearOldVisits(Context& context, HetDevTable* table) {
  if (table->round == context.Round()) return;
  table->round = context.Round();
  Launch<32>(context, "clear visits", table->view.buckets,
             ClearVisitsKernel{table->view.slots, table->capacity});
}

void ClearOldVisits(Context& context, HetDevCall* call) {
  if (call->round == context.Round()) return;
  call->round = context.Round();
  const uint64_t n = call->rows.n;
  Launch<32>(context, "clear visits", (n + kBucketSlots - 1) / kBucketSlots,
             ClearVisitsKernel{call->rows.slots, n});
}

}  // namespace het::dev

void HetDevCall::Reserve(HetDevContext& context, uint64_t n) {
  const uint64_t room = n + n / 4;
  if (found.bytes() < n * sizeof(uint64_t)) {
    looked_up = false;
    found = context.Allocate(room * sizeof(uint64_t), "a call");
  }
  if (ids.bytes() < n * sizeof(int64_t)) {
    has_ids = false;
    ids = context.Allocate(room * sizeof(int64_t), "a call");
  }
}

namespace het::dev {

void KeptRows::Keep(const HetDevBatch& batch, bool all_found) {
  Drop();
  kept_ = true;
  whole_ = all_found;
  for (uint32_t u = 0; u < batch.n_uses; ++u) {
    const HetDevUse& use = batch.uses[u];
    uses_.push_back({use.table->number, use.stamp, use.table->forgets});
  }
  for (uint32_t f = 0; f < batch.n_features; ++f)
    features_.push_back({batch.features[f].use, batch.features[f].n});
}

bool KeptRows::Holds(const HetDevBatch& batch) const {
  if (!kept_ || uses_.size() != batch.n_uses || features_.size() != batch.n_features) return false;
  for (uint32_t u = 0; u < batch.n_uses; ++u) {
    const OfUse& was = uses_[u];
    const HetDevTable* table = batch.uses[u].table;
    if (was.table != table->number || was.forgets != table->forgets || was.stamp < table->evicted_below)
      return false;
  }
  for (uint32_t f = 0; f < batch.n_features; ++f) {
    if (features_[f] != std::pair(batch.features[f].use, batch.features[f].n)) return false;
  }
  return true;
}

bool CountFirstUses(Context& context, HetDevTable* table, uint64_t n) {
  table->first_uses += n;
  if (table->first_uses < 8 * table->capacity) return false;
  table->first_uses = 0;
  Launch<32>(context, "halve frequencies", table->view.buckets, HalveKernel{table->view});
  return true;
}

}  // namespace het::dev

using namespace het::dev;  // NOLINT: the functions of the C ABI

int HetDevTableBytes(const HetDevTableConfig* config, uint64_t* bytes) {
  return Guard([&] {
    *bytes = 0;
    *bytes = Plan(*config, Corrections(*config).size()).bytes;
  });
}

int HetDevCreateTable(HetDevContext* context, const HetDevTableConfig* config, HetDevTable** table) {
  return Guard([&] {
    *table = nullptr;
    const std::vector<float> corrections = Corrections(*config);
    const Sections sections = Plan(*config, corrections.size());
    context->Begin(nullptr);
    auto made = std::make_unique<HetDevTable>();
    made->number = context->calls();
    made->round = context->Round();
    made->name = config->name == nullptr ? "" : config->name;
    made->capacity = sections.buckets * kBucketSlots;
    made->memory = context->Allocate(
        sections.bytes, NameOf(*config) + " with capacity " + std::to_string(config->capacity) + " rows");
    const Dev<char> memory = made->memory.as<char>();
    const auto section = [&](uint64_t begin) { return static_cast<void*>(memory.Plus(begin).raw()); };
    TableView& view = made->view;
    view.digests = Dev<uint8_t>(static_cast<uint8_t*>(section(sections.digests)));
    view.slots = Dev<Slot>(static_cast<Slot*>(section(sections.slots)));
    view.records = Dev<float>(static_cast<float*>(section(sections.records)));
    view.record = RecordOf(config->dim, config->row_floats, config->keep_updates != 0);
    view.keep_updates = config->keep_updates;
    view.buckets = sections.buckets;
    view.hash_seed = config->hash_seed;
    view.layout = het::Layout(config->partitions, config->hash_seed).OfTable(config->table);
    view.dim = config->dim;
    view.row_floats = config->row_floats;
    view.state_floats = view.row_floats - view.dim;
    view.policy = config->policy;
    view.optimizer = MakeOptimizer(*config);
    if (!corrections.empty()) {
      const Dev<float> to(static_cast<float*>(section(sections.corrections)));
      context->CopyIn(to, corrections.data(), corrections.size());
      view.optimizer.corrections = Dev<const float>(to.raw());
      view.optimizer.n_corrections = static_cast<uint32_t>(corrections.size());
    }
    context->Fill(view.digests, 0, made->capacity);
    context->Fill(view.slots, 0, made->capacity);
    context->Wait();
    *table = made.release();
  });
}

void HetDevDestroyTable(HetDevContext* context, HetDevTable* table) {
  if (table == nullptr) return;
  (void)Guard([&] { context->Finish(); });  // waits for kernels that use it
  (void)Guard([&] { delete table; });
}

int HetDevState(HetDevContext* context, HetDevTable* table, HetDevStream stream, HetDevTableState* state) {
  return Guard([&] {
    context->Begin(stream);
    constexpr uint32_t kCounts = kStripes * kStateCounts;
    const Dev<uint64_t> counts = context->Scratch<uint64_t>(kCounts);
    uint64_t* host = context->HostScratch<uint64_t>(kCounts);
    context->Fill(counts, 0, kCounts);
    Launch<32>(*context, "count rows", table->view.buckets, CountKernel{table->view, counts});
    context->CopyOut(host, counts, kCounts);
    context->Wait();
    *state = HetDevTableState{};
    state->capacity = table->capacity;
    state->bytes = table->memory.bytes();
    for (uint32_t stripe = 0; stripe < kStripes; ++stripe) {
      const uint64_t* of_stripe = host + stripe * kStateCounts;
      state->rows += of_stripe[kRows];
      state->dirty += of_stripe[kDirty];
      state->invalid += of_stripe[kInvalidRows];
      state->subscribed += of_stripe[kSubscribedRows];
    }
    state->inserts = table->inserts;
    state->evictions = table->evictions;
  });
}
