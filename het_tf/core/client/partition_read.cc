#include "het_tf/core/client/partition_read.h"

#include <algorithm>

#include "het_tf/core/client/row_sink.h"

namespace het {

bool PartitionRead::subscribes() const {
  return std::any_of(tables.begin(), tables.end(), [](const TableRead& asked) {
    return asked.device == nullptr && asked.cache->config().sync().subscribes;
  });
}

ReadOp::ReadOp() = default;

ReadOp::~ReadOp() {
  Detach();
  LetGo();
}

void ReadOp::Detach() {
  for (const PartitionReadPtr& part : parts) part->op = nullptr;
}

void ReadOp::LetGo() {
  for (TableCache* cache : reading) cache->EndReading();
  reading.clear();
}

}  // namespace het
