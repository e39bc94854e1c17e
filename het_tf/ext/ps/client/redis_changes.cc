#include "het_tf/ext/ps/client/redis_changes.h"

#include <iterator>
#include <utility>

#include "het_tf/ext/ps/client/redis_store.h"
#include "het_tf/ext/ps/keyspace.h"

namespace het {
namespace {

using follow::ChangeAnswer;

Status StatusOf(const RedisPipeline::Answer& answer) {
  if (answer.kind == RedisPipeline::Answer::kError) return StatusOfError(answer.error, answer.node);
  return answer.kind == RedisPipeline::Answer::kLost ? Status(Code::kUnavailable, answer.error) : Status();
}

}  // namespace

bool ReadChangesPage(RedisReply* reply, ChangesPage* page) {
  std::vector<RedisReply>& parts = reply->array;
  if (reply->kind != RedisReply::kArray || parts.size() < 3) return false;
  if (!ParsePosition(parts[0].text(), &page->start) || page->start.incarnation == 0) return false;
  if (!ParseCursor(parts[1].text(), &page->next)) return false;
  if (!ParseChangesKind(parts[2].text(), &page->kind)) return false;
  for (size_t i = 3; i < parts.size(); ++i) {
    if (parts[i].kind != RedisReply::kString) return false;
    page->chunks.push_back(std::move(parts[i].bytes));
  }
  return true;
}

Result<std::unique_ptr<RedisChanges>> RedisChanges::Open(const ServerAddress& address,
                                                         const std::string& name_space, double timeout) {
  HET_RETURN_IF_ERROR(CheckNamespace(name_space));
  RedisCluster cluster(address);
  HET_RETURN_IF_ERROR(cluster.Refresh(timeout));
  HET_ASSIGN_OR_RETURN(auto found, FindPartitions(&cluster, name_space, timeout));
  if (!found || found->made.empty()) {
    return FailedPrecondition("the parameter server at " + address.ToString() + " has no namespace '" +
                              name_space +
                              "'; follow the server that the model was trained with (HET_SERVE_PS names "
                              "another one than the model does)");
  }
  HET_RETURN_IF_ERROR(CheckRule(name_space, found->made));
  return std::unique_ptr<RedisChanges>(
      new RedisChanges(std::move(cluster), std::move(found->keys), found->hash_seed, timeout));
}

void RedisChanges::AskPage(uint32_t partition, const ChangesRequest& request) {
  std::vector<std::string> words = {"HET.CHANGES", pipeline_.keys()[partition], "SINCE",
                                    ToString(request.since)};
  // A poll of a partition that does not change must be short.
  if (!request.cursor.begins()) words.insert(words.end(), {"CURSOR", ToString(request.cursor)});
  words.insert(words.end(), {"MAXBYTES", std::to_string(request.max_bytes)});
  if (request.format != RowFormat::kFloat32)
    words.insert(words.end(), {"ROWS", RowFormatName(request.format)});
  pipeline_.Ask({{partition, 0}}, words,
                [this](RedisPipeline::Answer answer) { TakePage(std::move(answer)); });
}

void RedisChanges::TakePage(RedisPipeline::Answer answer) {
  const uint32_t partition = answer.parts[0].partition;
  const Status status = StatusOf(answer);
  if (!status.ok()) return Fail(partition, status);
  ChangeAnswer page;
  page.partition = partition;
  if (!ReadChangesPage(&answer.reply, &page.page)) {
    return Fail(partition, FailedPrecondition(answer.node.ToString() + " sent something else than changes"));
  }
  answers_.push_back(std::move(page));
}

void RedisChanges::AskTables(uint32_t partition, const std::vector<std::string>& names) {
  Tables& tables = tables_[partition] = Tables();
  tables.answer.partition = partition;
  tables.answer.tables.resize(names.size());
  tables.missing = names.size();
  for (size_t i = 0; i < names.size(); ++i) {  // a table's id is its cursor
    pipeline_.Ask(
        {{partition, 0}},
        {"HET.STAT", pipeline_.keys()[partition], "TABLES", std::to_string(HashName(names[i]))},
        [this, i, name = names[i]](RedisPipeline::Answer answer) { TakeTable(std::move(answer), name, i); });
  }
}

void RedisChanges::TakeTable(RedisPipeline::Answer answer, const std::string& name, size_t table) {
  const uint32_t partition = answer.parts[0].partition;
  const auto it = tables_.find(partition);
  if (it == tables_.end()) return;  // failed already
  const Status status = StatusOf(answer);
  if (!status.ok()) return Fail(partition, status);
  Tables& tables = it->second;
  if (answer.reply.array.size() == 2) {  // [cursor, [[name, spec, ...], ...]]
    for (const RedisReply& line : answer.reply.array[1].array) {
      if (line.array.size() < 2 || line.array[0].text() != name) continue;
      auto spec = ParseTableSpec(line.array[1].text());
      if (!spec.ok()) return Fail(partition, spec.status());
      tables.answer.tables[table] = std::move(spec.value());
    }
  }
  if (--tables.missing > 0) return;
  answers_.push_back(std::move(tables.answer));
  tables_.erase(it);
}

void RedisChanges::Fail(uint32_t partition, Status status) {
  tables_.erase(partition);
  ChangeAnswer answer;
  answer.partition = partition;
  answer.status = std::move(status);
  answers_.push_back(std::move(answer));
}

void RedisChanges::Collect(std::vector<ChangeAnswer>* answers) {
  pipeline_.Poll(0);
  std::move(answers_.begin(), answers_.end(), std::back_inserter(*answers));
  answers_.clear();
}

}  // namespace het
