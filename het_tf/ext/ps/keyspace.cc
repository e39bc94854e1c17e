#include "het_tf/ext/ps/keyspace.h"

#include "het_tf/core/wire/layout.h"

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

Status CheckRule(const std::string& name_space, const std::string& rule) {
  if (rule == std::to_string(Layout::kRule)) return Status();
  const std::string key = MetaKey(name_space);
  return FailedPrecondition("another version of het_tf made namespace '" + name_space +
                            "' of the parameter server, and looks for rows in other partitions: by rule " +
                            rule + ", this one by " + std::to_string(Layout::kRule) +
                            ". Remedy: use that version, or another namespace; to begin anew, delete '" +
                            key + "' and all of '" + key + ":*'");
}

bool NamespaceOf(const std::string& partition_key, std::string* name_space) {
  const std::string prefix = MetaKey("");
  const size_t tag = partition_key.find(":{", prefix.size());
  if (partition_key.rfind(prefix, 0) != 0 || tag == std::string::npos) return false;
  *name_space = partition_key.substr(prefix.size(), tag - prefix.size());
  return true;
}

std::string PartitionKey(const std::string& name_space, uint32_t tag) {
  return MetaKey(name_space) + ":{" + std::to_string(tag) + "}";
}

std::vector<uint32_t> PartitionTags(uint32_t partitions) {
  std::vector<int> partition_of_slot(kSlots, -1);
  for (uint32_t p = 0; p < partitions; ++p) {
    partition_of_slot[((uint64_t{2} * p + 1) * kSlots) / (uint64_t{2} * partitions)] = static_cast<int>(p);
  }
  std::vector<uint32_t> tags(partitions);
  uint32_t found = 0;
  for (uint32_t tag = 0; found < partitions; ++tag) {
    int& p = partition_of_slot[SlotOf(std::to_string(tag))];
    if (p < 0) continue;
    tags[static_cast<size_t>(p)] = tag;
    p = -1;
    ++found;
  }
  return tags;
}

std::vector<std::string> PartitionKeys(const std::string& name_space, uint32_t partitions) {
  std::vector<std::string> keys;
  for (uint32_t tag : PartitionTags(partitions)) keys.push_back(PartitionKey(name_space, tag));
  return keys;
}

}  // namespace het
