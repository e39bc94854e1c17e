// Partition::Serialize and Deserialize: all chunks in one run of bytes, each after its length.
#include "het_tf/core/store/chunk.h"

namespace het {

void Partition::Serialize(Bytes* out) const {
  out->clear();
  Writer w(out);
  ChunkWriter chunks(*this);
  for (Bytes chunk; chunks.Next(&chunk);) {
    w.Varint(chunk.size());
    w.Raw(chunk.data(), chunk.size());
  }
}

Result<std::unique_ptr<Partition>> Partition::Deserialize(Span<const uint8_t> bytes, uint64_t incarnation) {
  Reader r(bytes);
  ChunkReader chunks(incarnation);
  while (r.left() > 0) {
    const size_t size = r.Count();
    const uint8_t* chunk = r.Raw(size);
    if (chunk == nullptr) break;
    HET_RETURN_IF_ERROR(chunks.Add(Span<const uint8_t>(chunk, size)));
  }
  if (!r.ok() || !chunks.complete()) {
    return InvalidArgument("damaged partition: truncated, or not a partition");
  }
  return chunks.Take();
}

}  // namespace het
