// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78): the checksum of everything in a checkpoint.
#ifndef HET_TF_CORE_CHECKPOINT_CRC32C_H_
#define HET_TF_CORE_CHECKPOINT_CRC32C_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace het {

// The checksum of what `crc` is the checksum of, followed by `size` bytes; of nothing it is 0. Several bytes
// a cycle where the processor has SSE4.2.
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

// Without the processor's help; for tests, and for processors that have none.
uint32_t Crc32cPortable(uint32_t crc, const void* data, size_t size);

// "8 hex digits", as manifests have it.
std::string Crc32cText(uint32_t crc);

}  // namespace het

#endif  // HET_TF_CORE_CHECKPOINT_CRC32C_H_
