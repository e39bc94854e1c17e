// A partition as one run of bytes, all its chunks (store/chunk.h), each after its length.
#pragma once

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/local_service.h"

namespace het::testing {

inline Bytes BytesOf(const Partition& partition) {
  Bytes bytes;
  Writer writer(&bytes);
  ChunkWriter chunks(partition);
  for (Bytes chunk; chunks.Next(&chunk);) {
    writer.Varint(chunk.size());
    writer.Raw(chunk.data(), chunk.size());
  }
  return bytes;
}

inline Bytes BytesOf(LocalService* service, uint32_t partition) {
  return service->WithPartition(partition, [](const Partition& found) { return BytesOf(found); });
}

// The inverse. InvalidArgument: these are not bytes of BytesOf.
inline Result<std::unique_ptr<Partition>> PartitionOf(Span<const uint8_t> bytes, uint64_t incarnation) {
  Reader reader(bytes);
  ChunkReader chunks(incarnation);
  while (reader.left() > 0) {
    const size_t size = reader.Count();
    const uint8_t* const chunk = reader.Raw(size);
    if (chunk == nullptr) break;
    HET_RETURN_IF_ERROR(chunks.Add(Span<const uint8_t>(chunk, size)));
  }
  if (!reader.ok() || !chunks.complete()) return InvalidArgument("these are not the bytes of a partition");
  return chunks.Take();
}

inline Result<std::unique_ptr<Partition>> PartitionOf(const Bytes& bytes, uint64_t incarnation) {
  return PartitionOf(Span<const uint8_t>(bytes.data(), bytes.size()), incarnation);
}

// Replaces a partition by the content of the bytes, with a new incarnation, as a restart does.
inline void Revive(LocalService* service, uint32_t partition, const Bytes& bytes) {
  auto revived = PartitionOf(bytes, RandomId());
  if (!revived.ok()) throw std::runtime_error(revived.status().message());
  service->WithPartition(partition, [&](Partition& now) { now = std::move(*revived.value()); });
}

}  // namespace het::testing
