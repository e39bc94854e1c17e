#include "het_tf/core/client/partition_read.h"

#include <algorithm>

#include "het_tf/core/client/row_sink.h"

namespace het {

bool PartitionRead::subscribes() const {
  return std::any_of(tables.begin(), tables.end(), [](const TableRead& asked) {
    return asked.device == nullptr && asked.cache->config().sync().subscribes;
  });
}

void Pins::Forget(const TableCache* cache) {
  lines_.erase(
      std::remove_if(lines_.begin(), lines_.end(), [cache](const auto& pin) { return pin.first == cache; }),
      lines_.end());
}

ReadOp::ReadOp() = default;

ReadOp::~ReadOp() { Detach(); }

void ReadOp::Detach() {
  for (const PartitionReadPtr& part : parts) part->op = nullptr;
}

}  // namespace het
