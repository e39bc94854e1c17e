// Asks partitions in Redis for their changes (ext/serving/cc/follow/change_source.h, RedisPipeline):
//
//   AskPage    HET.CHANGES key SINCE position CURSOR cursor MAXBYTES bytes [ROWS format]
//   AskTables  HET.STAT key TABLES id, for each table
//
// Errors become answers, and the follower asks again after a pause. The server's user needs these rights:
// CLUSTER SLOTS, HGET of the namespace's key, HET.STAT, HET.CHANGES.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/ext/ps/client/redis_pipeline.h"
#include "het_tf/ext/serving/cc/follow/change_source.h"

namespace het {

// Takes the page out of an answer of HET.CHANGES. Returns false if it is something else.
bool ReadChangesPage(RedisReply* reply, ChangesPage* page);

class RedisChanges : public follow::ChangeSource {
 public:
  // FailedPrecondition: the server does not have the namespace. Unavailable: no answer within `timeout`
  // seconds, which is also the limit on a server's silence later. This call waits.
  static Result<std::unique_ptr<RedisChanges>> Open(const ServerAddress& address,
                                                    const std::string& name_space, double timeout);

  uint32_t partitions() const override { return static_cast<uint32_t>(pipeline_.keys().size()); }
  uint64_t hash_seed() const override { return hash_seed_; }
  std::string Where(uint32_t partition) const override { return pipeline_.NodeOf(partition).ToString(); }
  void AskPage(uint32_t partition, const ChangesRequest& request) override;
  void AskTables(uint32_t partition, const std::vector<std::string>& names) override;
  void Collect(std::vector<follow::ChangeAnswer>* answers) override;
  void Descriptors(std::vector<pollfd>* descriptors) override { pipeline_.Descriptors(descriptors); }

 private:
  // A question about tables: the answers so far.
  struct Tables {
    follow::ChangeAnswer answer;
    size_t missing = 0;
  };

  RedisChanges(RedisCluster cluster, std::vector<std::string> keys, uint64_t hash_seed, double timeout)
      : hash_seed_(hash_seed), pipeline_(std::move(cluster), std::move(keys), timeout) {}

  void TakePage(RedisPipeline::Answer answer);
  // `name`: of the table, number `table` of the question.
  void TakeTable(RedisPipeline::Answer answer, const std::string& name, size_t table);
  void Fail(uint32_t partition, Status status);

  const uint64_t hash_seed_;
  RedisPipeline pipeline_;
  std::map<uint32_t, Tables> tables_;  // questions about tables, by partition
  std::vector<follow::ChangeAnswer> answers_;
};

}  // namespace het
