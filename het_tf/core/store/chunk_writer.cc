// Writes a partition, or rows, as chunks.
#include <algorithm>

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/chunk_format.h"

namespace het {

using namespace chunk;  // NOLINT: this file and chunk_reader.cc are what it is for

namespace {

// Writes a row to `at`, which has room for kRowHead + data_bytes.
void WriteRow(const RowMeta& meta, const float* data, size_t data_bytes, uint8_t* at) {
  const auto put = [&at](const void* from, size_t size) {
    std::memcpy(at, from, size);
    at += size;
  };
  put(&meta.key, sizeof meta.key);
  put(&meta.clock, sizeof meta.clock);
  put(&meta.last_used, sizeof meta.last_used);
  put(&meta.count, sizeof meta.count);
  put(data, data_bytes);
}

// Writes rows of `shard` from *row on; returns how many.
uint32_t WriteRows(const Shard& shard, uint32_t* row, size_t max_rows, size_t max_bytes, Bytes* chunk) {
  const RowStore& store = shard.rows();
  const size_t row_bytes = kRowHead + store.row_floats() * sizeof(float);
  const size_t fit = max_bytes > kRowsHead ? (max_bytes - kRowsHead) / row_bytes : 0;
  const size_t limit = std::min({std::max<size_t>(fit, 1), std::max<size_t>(max_rows, 1), store.size()});
  chunk->clear();
  chunk->reserve(kRowsHead + limit * row_bytes);
  Writer w = Begin(Kind::kRows, chunk);
  w.Fixed(shard.schema().id());
  w.Fixed(static_cast<uint32_t>(store.row_floats()));
  const size_t count_at = chunk->size();
  w.Fixed(uint32_t{0});
  uint32_t count = 0;
  for (; *row < store.end() && count < limit; ++*row) {
    if (!store.live(*row)) continue;
    WriteRow(store.meta(*row), store.data(*row), row_bytes - kRowHead, w.Append(row_bytes));
    ++count;
  }
  std::memcpy(chunk->data() + count_at, &count, sizeof(count));
  return count;
}

}  // namespace

bool ScanRows(const Partition& partition, ScanPosition* at, size_t max_rows, size_t max_bytes, Bytes* chunk) {
  const auto& shards = partition.shards();
  auto it = shards.lower_bound(at->table);
  uint32_t row = it != shards.end() && it->first == at->table ? at->row : 0;
  chunk->clear();
  for (; it != shards.end(); ++it, row = 0) {
    const Shard& shard = *it->second;
    if (shard.rows().size() == 0) continue;
    if (WriteRows(shard, &row, max_rows, max_bytes, chunk) == 0) {
      chunk->clear();
      continue;
    }
    if (row < shard.rows().end()) {
      *at = {it->first, row};
      return true;
    }
    if (++it == shards.end()) break;
    *at = {it->first, 0};
    return true;
  }
  *at = ScanPosition();
  return false;
}

void ChunkWriter::WriteTable(Bytes* chunk) {
  Writer w = Begin(Kind::kTable, chunk);
  const Shard& shard = *table_->second;
  const std::string spec = shard.schema().ToJson(shard.limits());
  w.Fixed(shard.epoch());
  w.Fixed(shard.clock_floor());
  w.Raw(spec.data(), spec.size());
  ++table_;
}

void ChunkWriter::WriteClients(Bytes* chunk) {
  Writer w = Begin(Kind::kClients, chunk);
  do {
    w.Fixed(client_->first.high);
    w.Fixed(client_->first.low);
    w.Fixed(client_->second.last_seq);
    w.Fixed(client_->second.time);
    ++client_;
  } while (client_ != partition_.clients().all().end() && chunk->size() + kClientBytes <= max_bytes_);
}

bool ChunkWriter::Next(Bytes* chunk) {
  switch (stage_) {
    case Stage::kHead: {
      Writer w = Begin(Kind::kHead, chunk);
      w.Fixed(partition_.id().index);
      w.Fixed(partition_.id().count);
      w.Fixed(partition_.id().hash_seed);
      stage_ = Stage::kTables;
      return true;
    }
    case Stage::kTables:
      if (table_ != partition_.shards().end()) {
        WriteTable(chunk);
        return true;
      }
      stage_ = Stage::kRows;
      [[fallthrough]];
    case Stage::kRows: {
      const bool more = ScanRows(partition_, &rows_, SIZE_MAX, max_bytes_, chunk);
      if (!more) {
        stage_ = Stage::kClients;
        client_ = partition_.clients().all().begin();
      }
      if (!chunk->empty()) return true;
      [[fallthrough]];
    }
    case Stage::kClients:
      if (client_ != partition_.clients().all().end()) {
        WriteClients(chunk);
        return true;
      }
      stage_ = Stage::kLoading;
      [[fallthrough]];
    case Stage::kLoading:
      stage_ = Stage::kEnd;
      if (const LoadMark* mark = partition_.loading()) {
        Writer w = Begin(Kind::kLoading, chunk);
        w.Fixed(mark->since);
        w.Fixed(mark->until);
        w.Raw(mark->loader.data(), mark->loader.size());
        return true;
      }
      [[fallthrough]];
    case Stage::kEnd:
      Begin(Kind::kEnd, chunk);
      stage_ = Stage::kDone;
      return true;
    case Stage::kDone:
      break;
  }
  return false;
}

void EncodeSet(const TableSchema& schema, Span<const Key> keys, const float* rows, Bytes* chunk,
               const Clock* ages) {
  const size_t floats = schema.row_floats();
  Writer w = Begin(Kind::kSet, chunk);
  w.Fixed(schema.id());
  w.Fixed(static_cast<uint32_t>(floats));
  w.Fixed(static_cast<uint32_t>(keys.size()));
  for (size_t i = 0; i < keys.size(); ++i) {
    w.Fixed(keys[i]);
    w.Fixed(ages == nullptr ? Clock{0} : ages[i]);
    w.Fixed(uint32_t{0});
    w.Fixed(uint16_t{0});
    w.Raw(rows + i * floats, floats * sizeof(float));
  }
}

void EncodeRemove(const TableSchema& schema, Span<const Key> keys, Bytes* chunk) {
  EncodeKeys(Kind::kRemove, schema.id(), keys, chunk);
}

void chunk::EncodeKeys(Kind kind, uint64_t table, Span<const Key> keys, Bytes* chunk) {
  Writer w = Begin(kind, chunk);
  w.Fixed(table);
  w.Raw(keys.data(), keys.size() * sizeof(Key));
}

size_t chunk::EncodeValues(const Shard& shard, RowFormat format, Span<const uint32_t> rows, Bytes* chunk) {
  const size_t dim = shard.schema().dim();
  chunk->reserve(kRowsHead + 4 + rows.size() * (sizeof(Key) + MostRowBytes(format, dim, dim)));
  Writer w = Begin(Kind::kValues, chunk);
  w.Fixed(shard.schema().id());
  w.Fixed(static_cast<uint32_t>(dim));
  const size_t count_at = chunk->size();
  w.Fixed(uint32_t{0});
  w.Fixed(static_cast<uint32_t>(format));
  Vector<const float*> values;
  values.reserve(rows.size());
  shard.rows().ForEachLive(rows, [&](const RowMeta& meta, const float* data) {
    w.Fixed(meta.key);
    values.push_back(data);
  });
  PackRows({format}, dim, dim, values.data(), values.size(), &w);
  const auto count = static_cast<uint32_t>(values.size());
  std::memcpy(chunk->data() + count_at, &count, sizeof count);
  return count;
}

size_t chunk::EncodeStored(const Shard& shard, Span<const uint32_t> rows, Bytes* chunk) {
  const size_t row_bytes = kRowHead + shard.rows().row_floats() * sizeof(float);
  chunk->reserve(kRowsHead + rows.size() * row_bytes);
  Writer w = Begin(Kind::kRows, chunk);
  w.Fixed(shard.schema().id());
  w.Fixed(static_cast<uint32_t>(shard.rows().row_floats()));
  const size_t count_at = chunk->size();
  w.Fixed(uint32_t{0});
  uint8_t* const first = w.Append(rows.size() * row_bytes);
  uint32_t count = 0;
  shard.rows().ForEachLive(rows, [&](const RowMeta& meta, const float* data) {
    WriteRow(meta, data, row_bytes - kRowHead, first + count++ * row_bytes);
  });
  w.TakeBack((rows.size() - count) * row_bytes);
  std::memcpy(chunk->data() + count_at, &count, sizeof count);
  return count;
}

void EncodeForget(Span<const ClientId> clients, Bytes* chunk) {
  Writer w = Begin(Kind::kForget, chunk);
  for (const ClientId& client : clients) {
    w.Fixed(client.high);
    w.Fixed(client.low);
  }
}

void EncodeRows(const TableSchema& schema, const RowBatch& rows, Span<const uint32_t> which, Bytes* chunk) {
  const size_t floats = schema.row_floats();
  const size_t row_bytes = kRowHead + floats * sizeof(float);
  Writer w = Begin(Kind::kRows, chunk);
  w.Fixed(schema.id());
  w.Fixed(static_cast<uint32_t>(floats));
  w.Fixed(static_cast<uint32_t>(which.size()));
  const size_t head = chunk->size();
  chunk->resize(head + which.size() * row_bytes);
  uint8_t* at = chunk->data() + head;
  const auto put = [&at](const void* data, size_t size) {
    if (size > 0) std::memcpy(at, data, size);  // no slots: null
    at += size;
  };
  for (const uint32_t i : which) {
    put(rows.keys() + i, sizeof(Key));
    put(rows.clocks() + i, sizeof(Clock));
    put(rows.last_used() + i, sizeof(uint32_t));
    put(rows.counts() + i, sizeof(uint16_t));
    put(rows.values() + i * rows.dim(), rows.dim() * sizeof(float));
    put(rows.slots() + i * rows.slot_floats(), rows.slot_floats() * sizeof(float));
  }
}

void EncodeFloor(const TableSchema& schema, Clock floor, Bytes* chunk) {
  const std::string spec = schema.ToJson();
  Writer w = Begin(Kind::kTable, chunk);
  w.Fixed(uint64_t{0});
  w.Fixed(floor);
  w.Raw(spec.data(), spec.size());
}

}  // namespace het
