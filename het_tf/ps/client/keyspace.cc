#include "het_tf/ps/client/keyspace.h"

namespace het {

uint32_t SlotOf(const std::string& key) {
  size_t begin = key.find('{');
  size_t end = begin == std::string::npos ? begin : key.find('}', begin + 1);
  if (end == std::string::npos || end == begin + 1) {  // no tag, or an empty one
    begin = 0;
    end = key.size();
  } else {
    ++begin;
  }
  uint16_t crc = 0;
  for (size_t i = begin; i < end; ++i) {
    crc = static_cast<uint16_t>(crc ^ (static_cast<uint8_t>(key[i]) << 8));
    for (int bit = 0; bit < 8; ++bit) {
      crc = static_cast<uint16_t>((crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1);
    }
  }
  return crc % kSlots;
}

Status CheckNamespace(const std::string& name) {
  if (name.find_first_of("{}") == std::string::npos && name.size() <= 200) return Status();
  return InvalidArgument("namespace '" + name +
                         "' cannot be a key's part on a parameter server: it has a brace or more than 200 "
                         "bytes. Give it another name");
}

std::string MetaKey(const std::string& name_space) { return "het:" + name_space; }

std::vector<std::string> PartitionKeys(const std::string& name_space, uint32_t partitions) {
  std::vector<int> partition_of_slot(kSlots, -1);
  for (uint32_t p = 0; p < partitions; ++p) {
    partition_of_slot[(static_cast<uint64_t>(2 * p + 1) * kSlots) / (2 * partitions)] = static_cast<int>(p);
  }
  std::vector<std::string> keys(partitions);
  uint32_t found = 0;
  for (uint32_t tag = 0; found < partitions; ++tag) {
    const std::string text = std::to_string(tag);
    const int p = partition_of_slot[SlotOf(text)];
    if (p < 0 || !keys[static_cast<size_t>(p)].empty()) continue;
    keys[static_cast<size_t>(p)] = MetaKey(name_space) + ":{" + text + "}";
    ++found;
  }
  return keys;
}

}  // namespace het
