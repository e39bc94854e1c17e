// A store in this process that a follower asks, with the faults of a network: answers are late, questions are
// lost, and the store changes between the pages of a scan.
#pragma once

#include <deque>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "het_tf/core/store/local_service.h"
#include "het_tf/ext/serving/cc/follow/change_source.h"
#include "tests/testing/random.h"

namespace het::follow {

class LocalChanges : public ChangeSource {
 public:
  LocalChanges(LocalService* service, uint64_t seed) : service_(service), random_(seed) {}

  uint32_t partitions() const override { return service_->partitions(); }
  uint64_t hash_seed() const override { return service_->hash_seed(); }
  std::string Where(uint32_t) const override { return "the test's store"; }
  void AskPage(uint32_t partition, const ChangesRequest& request) override {
    questions_.push_back({partition, request, {}});
  }
  void AskTables(uint32_t partition, const std::vector<std::string>& names) override {
    questions_.push_back({partition, {}, names});
  }
  void Descriptors(std::vector<pollfd>*) override {}

  void Collect(std::vector<ChangeAnswer>* answers) override {
    // Answers travel.
    std::deque<ChangeAnswer> later;
    for (ChangeAnswer& answer : std::exchange(answers_, {})) {
      if (random_.Chance(late)) {
        later.push_back(std::move(answer));
      } else {
        answers->push_back(std::move(answer));
      }
    }
    answers_ = std::move(later);
    // Questions travel, too.
    std::deque<Question> waiting;
    for (Question& question : std::exchange(questions_, {})) {
      if (silent.count(question.partition) != 0 || random_.Chance(late)) {
        waiting.push_back(std::move(question));
        continue;
      }
      if (before_answer) before_answer();
      ++asked;
      ChangeAnswer answer = Handle(question);
      (late > 0 ? answers_.push_back(std::move(answer)) : answers->push_back(std::move(answer)));
    }
    for (Question& question : waiting) questions_.push_back(std::move(question));
  }

  double late = 0;  // the chance that a question, or an answer, waits for the next Collect
  double lost = 0;  // the chance that a question gets an error
  std::set<uint32_t> silent;
  std::function<void()> before_answer;
  size_t asked = 0;  // questions that were answered

 private:
  struct Question {
    uint32_t partition;
    ChangesRequest request;
    std::vector<std::string> names;  // of AskTables
  };

  ChangeAnswer Handle(const Question& question) {
    ChangeAnswer answer;
    answer.partition = question.partition;
    if (random_.Chance(lost)) {
      answer.status = Status(Code::kUnavailable, "the question was lost");
      return answer;
    }
    service_->WithPartition(question.partition, [&](Partition& partition) {
      if (question.names.empty()) {
        ReadChanges(partition, question.request, &answer.page);
        return 0;
      }
      for (const std::string& name : question.names) {
        const Shard* shard = partition.Find(HashName(name));
        answer.tables.emplace_back();
        if (shard != nullptr) answer.tables.back() = shard->schema().spec();
      }
      return 0;
    });
    return answer;
  }

  LocalService* const service_;
  testing::Random random_;
  std::deque<Question> questions_;
  std::deque<ChangeAnswer> answers_;
};

}  // namespace het::follow
