// Writes a partition, or rows, as chunks.
#include <algorithm>

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/chunk_format.h"

namespace het {

using namespace chunk;  // NOLINT: this file and chunk_reader.cc are what it is for

namespace {

// Writes a chunk of rows of one table.
class RowsWriter {
 public:
  // Room for `most` rows. Throws std::bad_alloc.
  RowsWriter(Kind kind, const TableSchema& schema, size_t most, Bytes* chunk)
      : format_(schema.stored()), chunk_(chunk) {
    const size_t bytes = most * (kRowHead + format_.words() * sizeof(float));
    chunk->clear();
    chunk->reserve(kRowsHead + bytes);
    Writer w = Begin(kind, chunk);
    w.Fixed(schema.id());
    w.Fixed(ShapeOf(schema));
    w.Fixed(uint32_t{0});
    at_ = w.Append(bytes);
  }
  // `stored`: the row as a store keeps it.
  void Add(const RowMeta& meta, const float* stored) {
    AddHead(meta);
    Put(stored, format_.words() * sizeof(float));
  }
  // A row of floats.
  void AddFloats(const RowMeta& meta, const float* row) {
    AddHead(meta);
    if (format_.exact()) return Put(row, format_.words() * sizeof(float));
    words_.resize(format_.words());
    format_.Write(row, /*draw=*/0, words_.data());
    Put(words_.data(), words_.size() * sizeof(float));
  }
  void AddFloats(const RowBatch& rows, size_t i) {
    row_.resize(rows.dim() + rows.slot_floats());
    rows.CopyRow(i, row_.data());
    AddFloats(rows.meta(i), row_.data());
  }
  // Returns the number of rows.
  uint32_t End() {
    chunk_->resize(static_cast<size_t>(at_ - chunk_->data()));
    std::memcpy(chunk_->data() + kRowsHead - sizeof count_, &count_, sizeof count_);
    return count_;
  }

 private:
  void AddHead(const RowMeta& meta) {
    Put(&meta.key, sizeof meta.key);
    Put(&meta.clock, sizeof meta.clock);
    Put(&meta.last_used, sizeof meta.last_used);
    Put(&meta.count, sizeof meta.count);
    ++count_;
  }
  void Put(const void* from, size_t size) {
    std::memcpy(at_, from, size);
    at_ += size;
  }

  const StoredFormat& format_;
  Vector<float> row_;    // of a batch
  Vector<float> words_;  // as it is stored
  Bytes* const chunk_;
  uint8_t* at_;
  uint32_t count_ = 0;
};

// Writes rows of `shard` from *row on; returns how many.
uint32_t WriteRows(const Shard& shard, uint32_t* row, size_t max_rows, size_t max_bytes, Bytes* chunk) {
  const RowStore& store = shard.rows();
  const size_t row_bytes = kRowHead + store.row_floats() * sizeof(float);
  const size_t fit = max_bytes > kRowsHead ? (max_bytes - kRowsHead) / row_bytes : 0;
  const size_t limit = std::min({std::max<size_t>(fit, 1), std::max<size_t>(max_rows, 1), store.size()});
  RowsWriter rows(Kind::kRows, shard.schema(), limit, chunk);
  for (size_t left = limit; *row < store.end() && left > 0; ++*row) {
    if (!store.live(*row)) continue;
    rows.Add(store.meta(*row), store.data(*row));
    --left;
  }
  return rows.End();
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
  RowsWriter writer(Kind::kSet, schema, keys.size(), chunk);
  for (size_t i = 0; i < keys.size(); ++i) {
    writer.AddFloats({keys[i], ages == nullptr ? 0 : ages[i], 0, 0, 0}, rows + i * schema.row_floats());
  }
  writer.End();
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
  Vector<const float*> stored;
  stored.reserve(rows.size());
  shard.rows().ForEachLive(rows, [&](const RowMeta& meta, const float* data) {
    w.Fixed(meta.key);
    stored.push_back(data);
  });
  for (const float* const row : stored) {
    const float* const value = shard.Read(row, /*slots=*/false);
    PackRows({format}, dim, dim, &value, 1, &w);
  }
  const auto count = static_cast<uint32_t>(stored.size());
  std::memcpy(chunk->data() + count_at, &count, sizeof count);
  return count;
}

size_t chunk::EncodeStored(const Shard& shard, Span<const uint32_t> rows, Bytes* chunk) {
  RowsWriter writer(Kind::kRows, shard.schema(), rows.size(), chunk);
  shard.rows().ForEachLive(rows, [&](const RowMeta& meta, const float* data) { writer.Add(meta, data); });
  return writer.End();
}

void EncodeForget(Span<const ClientId> clients, Bytes* chunk) {
  Writer w = Begin(Kind::kForget, chunk);
  for (const ClientId& client : clients) {
    w.Fixed(client.high);
    w.Fixed(client.low);
  }
}

void EncodeRows(const TableSchema& schema, const RowBatch& rows, Span<const uint32_t> which, Bytes* chunk) {
  RowsWriter writer(Kind::kRows, schema, which.size(), chunk);
  for (const uint32_t i : which) writer.AddFloats(rows, i);
  writer.End();
}

void EncodeFloor(const TableSchema& schema, Clock floor, Bytes* chunk) {
  const std::string spec = schema.ToJson();
  Writer w = Begin(Kind::kTable, chunk);
  w.Fixed(uint64_t{0});
  w.Fixed(floor);
  w.Raw(spec.data(), spec.size());
}

}  // namespace het
