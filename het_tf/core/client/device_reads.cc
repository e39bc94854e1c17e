#include "het_tf/core/client/device_reads.h"

#include <algorithm>
#include <utility>

namespace het {

DeviceSink::DeviceSink(DeviceReads* all, ReadOp* op) : all_(all), op_(op) { all_->reads_.push_back(op); }

DeviceSink::~DeviceSink() {
  all_->reads_.erase(std::remove(all_->reads_.begin(), all_->reads_.end(), op_), all_->reads_.end());
}

void DeviceSink::Take(const TableRead& asked, const TableAnswer& answer, ReplyRows* rows) {
  const TableSchema& schema = asked.cache->schema();
  const DeviceRead::Part& part = *asked.device;
  auto give = [&](uint32_t at, Clock clock) {
    float* const x = part.rows + at * schema.row_floats();
    const uint64_t own = FillRow(schema, part.keys[at], rows->Next(clock), answer.log, answer.applied, x);
    part.clocks[at] = clock + static_cast<Clock>(own);
    part.came[at] = 1;
  };
  const TableReply& reply = answer.reply;
  for (size_t i = 0; i < reply.refreshed.size(); ++i) {
    give(asked.check_at[reply.refreshed[i]], reply.refreshed_clocks[i]);
  }
  for (size_t i = 0; i < asked.fetches.size(); ++i) {
    give(asked.fetch_at[i], reply.fetched_clocks[i]);
  }
}

void DeviceReads::AskAnew(Session* session) {
  for (ReadOp* op : reads_) {
    if (!op->error.ok()) continue;
    for (PartitionReadPtr& part : op->parts) {
      if (part->tables[0].device->partition != session->partition()) continue;
      const bool answered = !part->wanted();
      auto anew = std::make_shared<PartitionRead>();
      for (const TableRead& asked : part->tables) {
        DeviceRead::Part* const rows = asked.device;
        TableRead& all = anew->tables.emplace_back(TableRead{asked.cache});
        all.device = rows;
        all.fetch_at = asked.check_at;
        all.fetch_at.insert(all.fetch_at.end(), asked.fetch_at.begin(), asked.fetch_at.end());
        for (uint32_t at : all.fetch_at) all.fetches.push_back(rows->keys[at]);
      }
      // The old part may be on its way: its answer is for nobody.
      part->op = nullptr;
      anew->op = op;
      part = anew;
      op->open_parts += answered;
      session->Ask(std::move(anew));
    }
  }
}

}  // namespace het
