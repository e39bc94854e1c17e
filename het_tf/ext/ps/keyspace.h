// How partitions lie in Redis: their keys, and the cluster slots that these hash to.
//
//   het:NAMESPACE             a plain hash: how many partitions there are, the hash seed, and, once they
//                             were made, by which rule rows lie in them (Layout::kRule)
//   het:NAMESPACE:{TAG}       one partition; TAG is the smallest number whose slot lies in the middle of the
//                             partition's share of the 16,384 slots, so that partitions spread evenly over
//                             any number of shards (the tags "0", "1", "2", ... do not)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "het_tf/core/base/status.h"

namespace het {

constexpr uint32_t kSlots = 16384;

// CRC-16/XMODEM of the key's hash tag, or of the whole key, modulo kSlots: as Redis Cluster has it.
uint32_t SlotOf(const std::string& key);

// InvalidArgument: a brace, which would change the slot, or more than 200 bytes.
Status CheckNamespace(const std::string& name);
std::string MetaKey(const std::string& name_space);
// FailedPrecondition: rows lie by another rule than this het_tf's, so it would not find them. `rule`: "made"
// of the hash above.
Status CheckRule(const std::string& name_space, const std::string& rule);
// The namespace of a partition's key; false for a key that is named otherwise.
bool NamespaceOf(const std::string& partition_key, std::string* name_space);
// The key of the partition with this tag.
std::string PartitionKey(const std::string& name_space, uint32_t tag);
// The tags, or the keys, of all partitions, 1 <= partitions <= kSlots.
std::vector<uint32_t> PartitionTags(uint32_t partitions);
std::vector<std::string> PartitionKeys(const std::string& name_space, uint32_t partitions);

}  // namespace het
