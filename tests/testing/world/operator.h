// What an operator, or another program, does to the store of a world while its workers train.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "het_tf/core/store/local_store.h"
#include "tests/testing/world/world.h"

namespace het::testing {

class Operator {
 public:
  explicit Operator(World* world) : world_(world), store_(&world->service()) {}

  // One of what the world's operators do, at random.
  void Do();

  void Remove(size_t table, const std::vector<Key>& keys);
  // Gives each row some ticks of each worker, and their number as its age.
  void Assign(size_t table, const std::vector<Key>& keys);
  // Time passes, and rows past their table's limits are swept.
  void Sweep(uint32_t seconds);
  void Clear(size_t table);
  void Drop(size_t table);
  // Drops the table and makes it again.
  void Renew(size_t table);
  // Keeps the table's rows for Load.
  void Save(size_t table);
  // `whole`: no other rows stay.
  void Load(size_t table, bool whole);
  // The same for its rows of one partition, as a server does it.
  void LoadChunkOf(size_t table, uint32_t p);

 private:
  std::vector<Key> SomeKeys();

  World* const world_;
  LocalStore store_;
  std::map<size_t, std::vector<std::unique_ptr<RowBatch>>> saved_;  // by table, its partitions
};

}  // namespace het::testing
