// A follower of a world's store, with live files and a reader of them: what a served model has. The rows that
// it serves are states that the store has had, and never go back to an earlier one; at the end they are the
// store's.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/ext/serving/cc/follow/follower.h"
#include "het_tf/ext/serving/cc/follow/live_reader.h"
#include "tests/ext/serving/follow/local_changes.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/test_step.h"

namespace het::testing {

class Followed {
 public:
  // Follows all tables of the store, which may have rows.
  Followed(LocalService* service, const std::vector<Schema>& schemas, uint64_t seed);

  // Call after each change of the store, with the row of every key that has one.
  void Note(const TableKey& key, const std::vector<float>& row);
  // The follower goes on for a while. Returns the first wrong row, or "".
  std::string Step();
  // The same until it has asked every partition, then compares all rows with the newest ones.
  std::string CatchUp();

 private:
  struct Row {
    std::vector<std::vector<float>> states;
    size_t served = 0;  // the state that was served last
  };

  void Advance();
  std::string Check(bool newest);

  const std::vector<Schema> schemas_;
  const TempFolder folder_;
  uint64_t now_ = 1'000'000'000;
  follow::LocalChanges source_;
  std::unique_ptr<follow::LiveWriter> writer_;
  std::unique_ptr<follow::Follower> follower_;
  std::unique_ptr<follow::LiveReader> reader_;
  std::map<TableKey, Row> rows_;
};

}  // namespace het::testing
