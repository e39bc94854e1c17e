#include "tests/testing/test_step.h"

#include "het_tf/core/wire/layout.h"

namespace het::testing {

void TestStep::Add(const TableSchema& schema, const PartitionId& store, const std::vector<Key>& keys) {
  const TableLayout layout = Layout(store).OfTable(schema.id());
  for (Key key : keys) {
    if (!seen_.insert({schema.id(), key}).second) continue;
    const uint64_t hash = layout.Hash(key);
    Part& part = parts_[{layout.Of(hash), schema.id()}];
    part.table = schema.id();
    part.partition = layout.Of(hash);
    part.dim = schema.dim();
    part.keys.push_back(key);
    part.hashes.push_back(hash);
    part.rows.push_back(kNoRow);
    part.values.push_back(nullptr);
    part.touched.push_back(1);
    part.sums.resize(part.keys.size() * schema.dim());
  }
}

CachedRead* TestStep::MakeRead() {
  read_ = CachedRead();
  for (auto& [where, p] : parts_) {
    read_.parts.push_back({p.table, p.partition, p.keys.size(), p.keys.data(), p.hashes.data(), p.rows.data(),
                           p.values.data()});
  }
  return &read_;
}

CachedWrite* TestStep::MakeWrite(float learning_rate) {
  write_ = CachedWrite();
  for (auto& [where, p] : parts_) {
    write_.parts.push_back({p.table, p.partition, p.keys.size(), p.keys.data(), p.hashes.data(),
                            p.rows.data(), p.sums.data(), p.touched.data(), learning_rate});
  }
  return &write_;
}

const float* TestStep::Value(uint64_t table, Key key) {
  for (auto& [where, p] : parts_) {
    for (size_t u = 0; u < p.keys.size(); ++u) {
      if (p.table == table && p.keys[u] == key) return p.values[u];
    }
  }
  return nullptr;
}

}  // namespace het::testing
