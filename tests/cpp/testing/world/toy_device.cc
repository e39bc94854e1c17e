#include "tests/cpp/testing/world/toy_device.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace het::testing {
namespace {

template <typename Fn>
void ForTouched(const CachedWrite& write, Fn fn) {
  for (const CachedWrite::Part& part : write.parts) {
    for (size_t u = 0; u < part.uniques; ++u) {
      if (part.touched[u]) fn(part, u);
    }
  }
}

}  // namespace

struct ToyDevice::Table : DeviceLines {
  Table(ToyDevice* d, Schema s) : device(d), schema(std::move(s)) {}
  void Invalidate(uint32_t partition) override;
  void Drop(uint32_t partition) override;
  void DropKeys(Span<const Key> keys) override;
  void DropClean() override;

  template <typename Fn>
  void DropRows(Fn goes) {
    for (auto row = rows.begin(); row != rows.end();) {
      const bool drop = goes(row->first, row->second);
      if (drop) device->Cache(*this)->counters().discarded_ticks += row->second.ticks;
      row = drop ? rows.erase(row) : std::next(row);
    }
  }

  ToyDevice* const device;
  const Schema schema;
  std::map<Key, Row> rows;
};

struct ToyDevice::Asked {
  struct Part {
    uint32_t partition;
    std::vector<Key> keys;
    std::vector<Clock> bases, clocks;
    std::vector<uint8_t> came, admit;
    std::vector<float> rows;
  };
  uint64_t token = 0;
  uint64_t stamp = 0;
  CachedRead* read = nullptr;
  std::map<std::pair<uint32_t, uint64_t>, Part> parts;
  DeviceRead wanted;
  std::map<TableKey, std::vector<float>> fetched;  // without training

  void Add(uint64_t table, uint32_t partition, Key key, Clock base);
};

void ToyDevice::Table::Invalidate(uint32_t partition) {
  device->Do([=] {
    for (auto& [key, row] : rows) row.invalid = row.invalid || device->PartitionOfKey(key) == partition;
  });
}

void ToyDevice::Table::Drop(uint32_t partition) {
  device->Do(
      [=] { DropRows([&](Key key, const Row&) { return device->PartitionOfKey(key) == partition; }); });
}

void ToyDevice::Table::DropKeys(Span<const Key> keys) {
  device->Do([this, all = std::vector<Key>(keys.begin(), keys.end())] {
    for (Key key : all) DropRows([&](Key k, const Row&) { return k == key; });
  });
}

void ToyDevice::Table::DropClean() {
  device->Do([=] { DropRows([](Key, const Row& row) { return row.ticks == 0; }); });
}

void ToyDevice::Asked::Add(uint64_t table, uint32_t partition, Key key, Clock base) {
  Part& part = parts[{partition, table}];
  part.partition = partition;
  part.keys.push_back(key);
  part.bases.push_back(base);
}

ToyDevice::ToyDevice(Client* client, const PartitionId& store, uint64_t seed)
    : client_(client), store_(store), random_(seed) {}

ToyDevice::~ToyDevice() = default;

Status ToyDevice::AddTable(const Schema& schema, const CacheConfig& config) {
  auto table = std::make_unique<Table>(this, schema);
  HET_RETURN_IF_ERROR(client_->AddDeviceTable(schema, config, table.get()));
  tables_[schema->id()] = std::move(table);
  return Status();
}

Status ToyDevice::Read(CachedRead* read, uint64_t token) {
  std::unique_ptr<Asked> asked = LookUp(read, token);
  HET_RETURN_IF_ERROR(client_->ReadForDevice(Want(asked.get()), token != 0));
  return Give(asked.get());
}

std::unique_ptr<ReadOp> ToyDevice::BeginRead(CachedRead* read, uint64_t token) {
  std::unique_ptr<Asked> asked = LookUp(read, token);
  std::unique_ptr<ReadOp> op = client_->BeginReadForDevice(Want(asked.get()), token != 0);
  asked_[op.get()] = std::move(asked);
  return op;
}

Status ToyDevice::FinishRead(ReadOp* op) {
  const auto found = asked_.find(op);
  const std::unique_ptr<Asked> asked = std::move(found->second);
  asked_.erase(found);
  HET_RETURN_IF_ERROR(client_->FinishRead(op));
  return Give(asked.get());
}

Status ToyDevice::Write(CachedWrite* write, uint64_t token) {
  const uint64_t call = token == 0 ? ~uint64_t{0} : token;
  const uint64_t stamp = ++stamp_;
  for (bool missing = true; missing;) {
    Asked asked;
    asked.token = call;
    asked.stamp = stamp;
    DoWhatWasPutOff();
    // Rows of the call are as old as its read.
    if (calls_[call].applied != applied_) calls_[call] = Call{applied_, {}};
    ForTouched(*write, [&](const CachedWrite::Part& part, size_t u) {
      Row* row = Find({part.table, part.keys[u]}, call);
      if (row != nullptr) row->stamp = stamp;
      if (row == nullptr || row->invalid) asked.Add(part.table, part.partition, part.keys[u], kNoBase);
    });
    missing = !asked.parts.empty();
    if (!missing) break;
    HET_RETURN_IF_ERROR(client_->ReadForDevice(Want(&asked), /*training=*/true));
    Install(&asked);
  }
  Leaving due;
  ForTouched(*write, [&](const CachedWrite::Part& part, size_t u) {
    Table& table = *tables_.at(part.table);
    Row* row = Find({part.table, part.keys[u]}, call);
    if (row->update.empty()) row->update.resize(row->x.size());
    table.schema->Tick(part.learning_rate, part.sums + u * table.schema->dim(), row->x.data(),
                       row->update.data());
    ++row->ticks;
    ++Cache(table)->counters().ticks;
    const bool in_call = table.rows.count(part.keys[u]) == 0;
    if (in_call || Cache(table)->config().sync().PushNow(row->ticks, row->base + row->ticks))
      Leave(part.table, part.keys[u], row, &due);
  });
  ++applied_;
  calls_.erase(call);
  const uint64_t of_step = client_->next_frame();
  HET_RETURN_IF_ERROR(Push(due, /*evicted=*/false));
  return client_->WaitForDevice(of_step);
}

Status ToyDevice::Flush() {
  DoWhatWasPutOff();
  Leaving dirty;
  for (auto& [id, table] : tables_) {
    for (auto& [key, row] : table->rows) {
      if (row.ticks > 0) Leave(id, key, &row, &dirty);
    }
  }
  HET_RETURN_IF_ERROR(Push(dirty, /*evicted=*/false));
  return client_->Flush();
}

uint64_t ToyDevice::UnappliedTicks(uint64_t table, Key key) {
  const Row* row = Find({table, key}, 0);
  return client_->UnappliedTicks(table, key) + (row == nullptr ? 0 : row->ticks);
}

ToyDevice::Row* ToyDevice::Find(const TableKey& key, uint64_t call) {
  auto& rows = tables_.at(key.first)->rows;
  if (const auto row = rows.find(key.second); row != rows.end()) return &row->second;
  const auto found = calls_.find(call);
  if (found == calls_.end()) return nullptr;
  const auto row = found->second.rows.find(key);
  return row == found->second.rows.end() ? nullptr : &row->second;
}

std::map<Key, ToyDevice::Row>& ToyDevice::rows(uint64_t table) { return tables_.at(table)->rows; }

void ToyDevice::DoWhatWasPutOff() {
  while (!put_off_.empty()) {
    put_off_.front()();
    put_off_.pop_front();
  }
}

TableCache* ToyDevice::Cache(const Table& table) { return client_->cache(table.schema->id()); }

void ToyDevice::PutOff(std::function<void()> what) {
  put_off_.push_back(std::move(what));
  if (random_.Chance(0.5)) DoWhatWasPutOff();
}

void ToyDevice::Do(std::function<void()> what) {
  ++told_;
  PutOff([this, what = std::move(what)] {
    calls_.clear();
    what();
  });
}

std::unique_ptr<ToyDevice::Asked> ToyDevice::LookUp(CachedRead* read, uint64_t token) {
  auto asked = std::make_unique<Asked>();
  asked->token = token;
  asked->stamp = token == 0 ? 0 : ++stamp_;
  asked->read = read;
  DoWhatWasPutOff();
  for (const CachedRead::Part& part : read->parts) {
    Table& table = *tables_.at(part.table);
    const bool check = Cache(table)->config().pull_bound != kUnbounded;
    if (token != 0) Cache(table)->BeginLookup(token);
    size_t hits = 0;
    for (size_t u = 0; u < part.uniques; ++u) {
      const auto row = table.rows.find(part.keys[u]);
      const bool here = row != table.rows.end();
      hits += here;
      if (here && token != 0) row->second.stamp = asked->stamp;
      const bool trusted = here && !row->second.invalid;
      if (!trusted || check)
        asked->Add(part.table, part.partition, part.keys[u], trusted ? row->second.base : kNoBase);
    }
    if (token == 0) continue;
    Cache(table)->counters().reads += part.uniques;
    Cache(table)->counters().hits += hits;
  }
  return asked;
}

DeviceRead* ToyDevice::Want(Asked* asked) {
  for (auto& [where, part] : asked->parts) {
    const size_t n = part.keys.size();
    part.came.assign(n, 7);
    part.admit.assign(n, 7);
    part.clocks.assign(n, -7);
    part.rows.assign(n * tables_.at(where.second)->schema->row_floats(), -777);
    asked->wanted.parts.push_back({where.second, where.first, n, part.keys.data(), part.bases.data(),
                                   part.came.data(), part.admit.data(), part.clocks.data(),
                                   part.rows.data()});
  }
  return &asked->wanted;
}

Status ToyDevice::Give(Asked* asked) {
  Install(asked);
  bool missing = false;
  for (CachedRead::Part& part : asked->read->parts) {
    for (size_t u = 0; u < part.uniques; ++u) {
      part.values[u] = Value({part.table, part.keys[u]}, asked);
      missing = missing || part.values[u] == nullptr;
    }
  }
  return missing ? Read(asked->read, asked->token) : Status();
}

void ToyDevice::Install(Asked* asked) {
  DoWhatWasPutOff();
  Leaving victims;
  for (auto& [where, part] : asked->parts) {
    const uint64_t id = where.second;
    Table& table = *tables_.at(id);
    const size_t floats = table.schema->row_floats();
    for (size_t i = 0; i < part.keys.size(); ++i) {
      if (!part.came[i]) continue;
      const Key key = part.keys[i];
      const float* given = part.rows.data() + i * floats;
      Row* row = nullptr;
      if (const auto here = table.rows.find(key); here != table.rows.end()) {
        row = &here->second;
      } else if (asked->token == 0) {
        asked->fetched[{id, key}].assign(given, given + floats);
        continue;
      } else if (part.admit[i] && MakeRoom(&table, asked->stamp, &victims)) {
        row = &table.rows[key];
        ++Cache(table)->counters().inserts;
      } else {
        Call& call = calls_.try_emplace(asked->token, Call{applied_, {}}).first->second;
        row = &call.rows[{id, key}];
        ++Cache(table)->counters().transient_rows;
      }
      row->x.assign(given, given + floats);
      if (row->ticks > 0) table.schema->optimizer().MergeInto(row->update.data(), row->ticks, row->x.data());
      row->base = part.clocks[i];
      row->invalid = false;
      row->stamp = std::max(row->stamp, asked->stamp);
    }
  }
  Require(Push(victims, /*evicted=*/true));
}

bool ToyDevice::MakeRoom(Table* table, uint64_t stamp, Leaving* victims) {
  const size_t capacity = Cache(*table)->config().capacity;
  while (table->rows.size() >= capacity) {
    std::vector<Key> may_go;
    for (auto& [key, row] : table->rows) {
      if (row.stamp < stamp) may_go.push_back(key);
    }
    if (may_go.empty()) return false;
    const Key key = random_.Pick(may_go);
    Row& row = table->rows[key];
    if (row.ticks > 0) Leave(table->schema->id(), key, &row, victims);
    table->rows.erase(key);
    ++Cache(*table)->counters().evictions;
  }
  return true;
}

void ToyDevice::Leave(uint64_t table, Key key, Row* row, Leaving* leaving) {
  Updates& updates = (*leaving)[table];
  updates.keys.push_back(key);
  updates.ticks.push_back(row->ticks);
  updates.clocks.push_back(row->base + row->ticks);
  updates.updates.insert(updates.updates.end(), row->update.begin(), row->update.end());
  row->base += row->ticks;
  row->ticks = 0;
  row->update.assign(row->update.size(), 0);
}

Status ToyDevice::Push(const Leaving& leaving, bool evicted) {
  DevicePush push;
  for (const auto& [table, u] : leaving) {
    push.parts.push_back(
        {table, u.keys.size(), u.keys.data(), u.ticks.data(), u.clocks.data(), u.updates.data(), evicted});
  }
  return push.parts.empty() ? Status() : client_->PushForDevice(push);
}

const float* ToyDevice::Value(const TableKey& key, Asked* asked) {
  if (Row* row = Find(key, asked->token)) return row->x.data();
  const auto fetched = asked->fetched.find(key);
  if (fetched == asked->fetched.end()) return nullptr;
  asked->read->private_rows.emplace_back(fetched->second.begin(), fetched->second.end());
  return asked->read->private_rows.back().data();
}

void ToyDevice::Require(const Status& status) {
  if (!status.ok()) std::abort();
}

}  // namespace het::testing
