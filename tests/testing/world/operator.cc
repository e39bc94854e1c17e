#include "tests/testing/world/operator.h"

#include <memory>
#include <numeric>
#include <vector>

#include "het_tf/core/store/chunk.h"

namespace het::testing {
namespace {

constexpr size_t kBatchBytes = size_t{1} << 20;  // of all rows of a partition

}  // namespace

std::vector<Key> Operator::SomeKeys() {
  std::vector<Key> keys;
  for (uint64_t n = 1 + world_->random().Below(4); n > 0; --n)
    keys.push_back(world_->random().Between(-2, 9));
  return keys;
}

void Operator::Do() {
  Random& r = world_->random();
  const size_t table = r.Below(world_->config().tables);
  const uint64_t what = r.Below(6);
  if (world_->config().operators == Operators::kRows) {
    if (what < 3) return Remove(table, SomeKeys());
    const TableLimits& limits = *world_->config().limits;
    return what < 5 ? Assign(table, SomeKeys())
                    : Sweep(world_->random().Chance(0.5) ? limits.ttl : limits.min_count_ttl);
  }
  if (what == 0) return Clear(table);
  if (what == 1) return Renew(table);
  if (saved_.count(table) == 0 || r.Chance(0.3)) return Save(table);
  if (r.Chance(0.5)) return LoadChunkOf(table, static_cast<uint32_t>(r.Below(store_.partitions())));
  Load(table, r.Chance(0.5));
}

void Operator::Remove(size_t table, const std::vector<Key>& keys) {
  world_->Operate([&] {
    World::Require(store_.Remove(*world_->schema(table), Span<const Key>(keys.data(), keys.size())).status());
  });
}

void Operator::Assign(size_t table, const std::vector<Key>& keys) {
  const TableSchema& schema = *world_->schema(table);
  std::vector<float> rows;
  std::vector<Clock> ages;
  for (size_t i = 0; i < keys.size(); ++i) {
    ages.push_back(0);
    for (uint32_t v = 0; v < schema.dim(); ++v) {
      const int64_t ticks = world_->random().Between(0, 3);
      rows.push_back(kInitial - static_cast<float>(ticks));
      if (v < world_->config().workers) ages.back() += ticks;
    }
    world_->Know({schema.id(), keys[i]});
  }
  world_->Operate([&] {
    World::Require(
        store_.Assign(schema, Span<const Key>(keys.data(), keys.size()), rows.data(), false, ages.data()));
  });
}

void Operator::Sweep(uint32_t seconds) {
  world_->Operate([&] {
    world_->now += seconds;
    // A sweep looks at a few rows of some tables.
    for (uint32_t n = 0; n < 64 * world_->service().partitions(); ++n) world_->service().SweepNext();
  });
}

void Operator::Clear(size_t table) {
  world_->Operate([&] { World::Require(store_.ClearTable(*world_->schema(table))); }, /*replaces=*/true);
}

void Operator::Drop(size_t table) {
  world_->Operate([&] { World::Require(store_.DropTable(*world_->schema(table))); }, /*replaces=*/true);
}

void Operator::Renew(size_t table) {
  const Schema& schema = world_->schema(table);
  world_->Operate(
      [&] {
        World::Require(store_.DropTable(*schema));
        World::Require(store_.CreateTable(schema));
      },
      /*replaces=*/true);
}

void Operator::Save(size_t table) {
  const TableSchema& schema = *world_->schema(table);
  std::vector<std::unique_ptr<RowBatch>>& saved = saved_[table];
  saved.clear();
  for (uint32_t p = 0; p < store_.partitions(); ++p) {
    saved.push_back(std::make_unique<RowBatch>(schema, kBatchBytes));
    uint64_t cursor = 0;
    do {
      World::Require(store_.ScanSome(schema, p, &cursor, saved.back().get()));
    } while (cursor != TableStore::kScanned);
  }
}

void Operator::Load(size_t table, bool whole) {
  const TableSchema& schema = *world_->schema(table);
  world_->Operate(
      [&] {
        World::Require(store_.BeginLoad("an operator", 60));
        if (whole) World::Require(store_.ClearTable(schema));
        for (const auto& rows : saved_.at(table)) World::Require(store_.LoadBatch(schema, *rows));
        World::Require(store_.CommitLoad("an operator"));
      },
      /*replaces=*/true);
}

void Operator::LoadChunkOf(size_t table, uint32_t p) {
  const RowBatch& rows = *saved_.at(table)[p];
  std::vector<uint32_t> which(rows.size());
  std::iota(which.begin(), which.end(), 0);
  Bytes chunk;
  EncodeRows(*world_->schema(table), rows, Span<const uint32_t>(which.data(), which.size()), &chunk);
  world_->Operate(
      [&] {
        World::Require(store_.BeginLoad("an operator", 60));
        world_->service().WithPartition(p, [&](Partition& partition) {
          World::Require(LoadChunk({chunk.data(), chunk.size()}, &partition, nullptr, RandomId()));
        });
      },
      /*replaces=*/true);
}

}  // namespace het::testing
