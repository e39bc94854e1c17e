#include "het_tf/ext/gpu/cc/device_reads.h"

#include <algorithm>
#include <utility>

#include "het_tf/core/client/asker.h"

namespace het {

DeviceSink::DeviceSink(ReadsUnderWay* all, ReadOp* op, const DeviceRead& read, bool training)
    : all_(all), op_(op), read_(read), training_(training) {
  all_->sinks_.push_back(this);
}

DeviceSink::~DeviceSink() {
  all_->sinks_.erase(std::remove(all_->sinks_.begin(), all_->sinks_.end(), this), all_->sinks_.end());
}

void DeviceSink::Classify(const CachedTables& tables, Asker* asker) {
  for (const DeviceRead::Part& rows : read_.parts) {
    TableCache& cache = tables.at(rows.table);
    if (rows.n == 0 && !(training_ && cache.policy().sync().subscribes)) continue;
    asker->Begin(&cache, rows.partition);
    TableRead* const asked = asker->asked();
    const auto fetches = static_cast<size_t>(
        std::count_if(rows.bases, rows.bases + rows.n, [](Clock base) { return base < 0; }));
    asked->fetches.reserve(fetches);
    asked->fetch_at.reserve(fetches);
    asked->checks.reserve(rows.n - fetches);
    asked->clocks.reserve(rows.n - fetches);
    asked->check_at.reserve(rows.n - fetches);
    for (uint32_t i = 0; i < rows.n; ++i) {
      rows.came[i] = 0;
      rows.subscribed[i] = 0;
      rows.admit[i] = training_;
      const Clock base = rows.bases[i];
      base >= 0 ? asked->Check(rows.keys[i], base, i) : asked->Fetch(rows.keys[i], i);
    }
  }
}

size_t DeviceSink::Take(const TableRead& asked, const TableAnswer& answer, ReplyRows* rows) {
  const TableSchema& schema = *asked.cache->schema();
  const DeviceRead::Part& part =
      *std::find_if(read_.parts.begin(), read_.parts.end(), [&](const DeviceRead::Part& each) {
        return each.table == schema.id() && each.partition == answer.partition;
      });
  auto give = [&](uint32_t at, Clock clock) {
    float* const x = part.rows + at * schema.row_floats();
    const uint64_t own = FillRow(schema, part.keys[at], rows->Next(clock), answer.log, answer.applied, x);
    part.clocks[at] = clock + static_cast<Clock>(own);
    part.came[at] = 1;
  };
  const TableReply& reply = answer.reply;
  for (size_t i = 0; i < reply.refreshed.size(); ++i) {
    const uint32_t check = reply.refreshed[i];
    give(asked.check_at[check], asked.Refreshed(check, reply.refreshed_lags[i]));
  }
  for (size_t i = 0; i < asked.fetches.size(); ++i) {
    give(asked.fetch_at[i], reply.fetched_clocks[i]);
  }
  for (const Vector<uint32_t>* places : {&asked.check_at, &asked.fetch_at}) {
    for (uint32_t at : *places) part.subscribed[at] = answer.subscribed;
  }
  return static_cast<size_t>(std::count_if(asked.fetch_at.begin(), asked.fetch_at.end(),
                                           [&](uint32_t at) { return part.bases[at] == kNoBase; }));
}

void DeviceSink::Notified(uint32_t partition, const Reply& reply) {
  for (const DeviceRead::Part& part : read_.parts) {
    if (part.partition != partition || part.n == 0) continue;
    if (reply.ends_subscriptions()) std::fill_n(part.subscribed, part.n, 0);
    const TableReply* const said = reply.Of(part.table);
    if (said == nullptr) continue;
    for (Key key : said->notified_keys) {
      const Key* const at = std::lower_bound(part.keys, part.keys + part.n, key);
      if (at != part.keys + part.n && *at == key) part.subscribed[at - part.keys] = 0;
    }
  }
}

void DeviceSink::AskAnew(Session* session) {
  if (!op_->error.ok()) return;
  for (PartitionReadPtr& part : op_->parts) {
    if (part->partition != session->partition()) continue;
    const bool answered = !part->wanted();
    auto anew = std::make_shared<PartitionRead>(*part);
    for (TableRead& asked : anew->tables) {
      asked.fetches.insert(asked.fetches.end(), asked.checks.begin(), asked.checks.end());
      asked.fetch_at.insert(asked.fetch_at.end(), asked.check_at.begin(), asked.check_at.end());
      asked.checks.clear();
      asked.clocks.clear();
      asked.check_at.clear();
    }
    // The old part may be on its way: its answer is for nobody.
    part->op = nullptr;
    anew->op = op_;
    part = anew;
    op_->open_parts += answered;
    session->Ask(std::move(anew));
  }
}

void ReadsUnderWay::AskAnew(Session* session) {
  for (DeviceSink* sink : sinks_) sink->AskAnew(session);
}

void ReadsUnderWay::Notified(uint32_t partition, const Reply& reply) {
  for (DeviceSink* sink : sinks_) sink->Notified(partition, reply);
}

}  // namespace het
