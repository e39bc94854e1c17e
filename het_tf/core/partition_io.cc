// Partition::Serialize and Deserialize: the state that must survive a restart, in one run of bytes.
#include "het_tf/core/partition.h"

namespace het {
namespace {

constexpr uint32_t kMagic = 0x50544548;  // "HETP"
constexpr uint8_t kVersion = 1;

}  // namespace

void Partition::Serialize(Bytes* out) const {
  out->clear();
  Writer w(out);
  w.Fixed(kMagic);
  w.Fixed(kVersion);
  w.Fixed(id_.index);
  w.Fixed(id_.count);
  w.Fixed(id_.hash_seed);
  w.Varint(last_seq_.size());
  for (const auto& [client, seq] : last_seq_) {
    w.Fixed(client.high);
    w.Fixed(client.low);
    w.Fixed(seq);
  }
  w.Varint(shards_.size());
  for (const auto& [table, shard] : shards_) {
    const std::string spec = shard->schema().ToJson();
    w.Varint(spec.size());
    w.Raw(spec.data(), spec.size());
    w.Fixed(shard->epoch());
    const RowStore& rows = shard->rows();
    w.Varint(rows.size());
    for (uint32_t row = 0; row < rows.end(); ++row) {
      if (!rows.live(row)) continue;
      const RowMeta& meta = rows.meta(row);
      w.Fixed(meta.key);
      w.Fixed(meta.clock);
      w.Fixed(meta.last_used);
      w.Fixed(meta.count);
      w.Raw(rows.data(row), rows.row_floats() * sizeof(float));
    }
  }
}

Result<std::unique_ptr<Partition>> Partition::Deserialize(Span<const uint8_t> bytes, uint64_t incarnation) {
  const Status broken = InvalidArgument("damaged partition: truncated, or not a partition");
  Reader r(bytes);
  if (r.Fixed<uint32_t>() != kMagic || r.Fixed<uint8_t>() != kVersion) return broken;
  PartitionId id;
  id.index = r.Fixed<uint32_t>();
  id.count = r.Fixed<uint32_t>();
  id.hash_seed = r.Fixed<uint64_t>();
  auto partition = std::make_unique<Partition>(id, incarnation);
  const size_t clients = r.Count();
  for (size_t i = 0; i < clients && r.ok(); ++i) {
    ClientId client;
    client.high = r.Fixed<uint64_t>();
    client.low = r.Fixed<uint64_t>();
    partition->last_seq_[client] = r.Fixed<uint64_t>();
  }
  const size_t tables = r.Count();
  for (size_t i = 0; i < tables && r.ok(); ++i) {
    const size_t length = r.Count();
    const uint8_t* text = r.Raw(length);
    if (text == nullptr) return broken;
    auto spec = ParseTableSpec(std::string(reinterpret_cast<const char*>(text), length));
    if (!spec.ok()) return spec.status();
    auto schema = TableSchema::Create(spec.value());
    if (!schema.ok()) return schema.status();
    const uint64_t epoch = r.Fixed<uint64_t>();
    HET_RETURN_IF_ERROR(partition->CreateTable(schema.value(), epoch));
    RowStore& rows = partition->Find(schema.value()->id())->rows();
    const size_t count = r.Count();
    for (size_t k = 0; k < count && r.ok(); ++k) {
      RowMeta meta{};
      meta.key = r.Fixed<Key>();
      meta.clock = r.Fixed<Clock>();
      meta.last_used = r.Fixed<uint32_t>();
      meta.count = r.Fixed<uint16_t>();
      meta.flags = RowStore::kLive;
      const uint8_t* data = r.Raw(rows.row_floats() * sizeof(float));
      if (data == nullptr || rows.Find(meta.key) != kNoRow) return broken;
      const uint32_t row = rows.Insert(meta.key, rows.Hash(meta.key));
      rows.meta(row) = meta;
      std::memcpy(rows.data(row), data, rows.row_floats() * sizeof(float));
    }
  }
  if (!r.ok() || r.left() != 0) return broken;
  return partition;
}

}  // namespace het
