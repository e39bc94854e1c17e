#include "tests/cpp/testing/device/device_world.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace het::testing {

DeviceArray::DeviceArray(HetDevContext* context, const void* host, size_t bytes)
    : context_(context), bytes_(bytes) {
  Create(host);
}

DeviceArray::DeviceArray(DeviceArray&& other) noexcept
    : context_(other.context_), memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}

void DeviceArray::Create(const void* host) {
  HET_DEV_OK_OR_FAIL(HetDevMalloc(context_, bytes_, &memory_));
  if (host == nullptr) return;
  HET_DEV_OK_OR_FAIL(HetDevCopyIn(context_, memory_, host, bytes_, nullptr));
}

HetDevTableConfig SgdTable(const char* name, uint64_t capacity, uint32_t dim) {
  HetDevTableConfig config = {};
  config.name = name;
  config.capacity = capacity;
  config.dim = dim;
  config.row_floats = dim;
  config.policy = HET_DEV_LRU;
  config.optimizer = HET_DEV_SGD;
  config.keep_updates = 1;
  config.hash_seed = 7;
  config.partitions = 16;
  return config;
}

Keys Wanted::keys(uint32_t use) const {
  Keys result;
  for (const auto& [key, base] : bases) {
    if (key.first == use) result.push_back(key.second);
  }
  return result;
}

bool Update::operator==(const Update& other) const {
  return use == other.use && key == other.key && ticks == other.ticks && update == other.update;
}

DeviceWorld::~DeviceWorld() = default;

void DeviceWorld::SetUp() {
  HET_DEV_OK_OR_FAIL(HetDevCreateContext(0, &context_));
  HET_DEV_OK_OR_FAIL(HetDevCreateCall(context_, &call_));
}

void DeviceWorld::TearDown() {
  features_.clear();
  ids_.clear();
  rows_.clear();
  HetDevDestroyCall(context_, call_);
  for (HetDevTable* table : tables_) HetDevDestroyTable(context_, table);
  HetDevDestroyContext(context_);
}

void DeviceWorld::AddTable(const HetDevTableConfig& config) {
  HetDevTable* table = nullptr;
  HET_DEV_OK_OR_FAIL(HetDevCreateTable(context_, &config, &table));
  tables_.push_back(table);
  configs_.push_back(config);
  HetDevUse use = {};
  use.table = table;
  use.push_bound = config.keep_updates != 0 ? INT64_MAX : 0;
  use.learning_rate = 1;
  uses_.push_back(use);
}

void DeviceWorld::SetBatch(const std::vector<Feature>& features) {
  features_.clear();
  ids_.clear();
  rows_.clear();
  ids_.reserve(features.size());
  rows_.reserve(features.size());
  for (const Feature& feature : features) {
    HetDevFeature f = {};
    f.use = feature.use;
    f.n = feature.ids.size();
    f.has_padding = feature.has_padding ? 1 : 0;
    f.padding_id = feature.padding_id;
    if (f.n > 0) {
      ids_.emplace_back(context_, feature.ids.data(), f.n * sizeof(int64_t));
      const std::vector<float> garbage(f.n * configs_[feature.use].dim, -999.0f);
      rows_.emplace_back(context_, garbage.data(), garbage.size() * sizeof(float));
      f.ids = ids_.back().as<int64_t>();
      f.rows = rows_.back().as<float>();
    } else {
      ids_.emplace_back(context_, nullptr, 1);
      rows_.emplace_back(context_, nullptr, 1);
    }
    features_.push_back(f);
  }
  batch_ = HetDevBatch{uses_.data(), static_cast<uint32_t>(uses_.size()), features_.data(),
                       static_cast<uint32_t>(features_.size())};
}

void DeviceWorld::NewStep() {
  ++stamp_;
  HetDevResetCall(context_, call_);
  for (HetDevUse& use : uses_) use.stamp = use.pinned_from = stamp_;
}

int DeviceWorld::TryLookup(int training, Wanted* result) {
  HetDevWanted wanted;
  const int code = HetDevLookup(context_, call_, &batch_, training, nullptr, &wanted);
  if (code != HET_DEV_OK) return code;
  *result = Wanted();
  for (uint64_t i = 0; i < wanted.n; ++i) {
    EXPECT_TRUE(result->bases.emplace(std::make_pair(wanted.use[i], wanted.keys[i]), wanted.bases[i]).second)
        << "wanted twice: " << wanted.keys[i];
  }
  result->reads.assign(wanted.reads, wanted.reads + batch_.n_uses);
  result->hits.assign(wanted.hits, wanted.hits + batch_.n_uses);
  return code;
}

Wanted DeviceWorld::Lookup(int training) {
  Wanted result;
  EXPECT_EQ(TryLookup(training, &result), HET_DEV_OK) << HetDevError();
  return result;
}

std::vector<float> DeviceWorld::StoredRow(int64_t key, int64_t base, uint32_t row_floats) {
  std::vector<float> row(row_floats);
  for (uint32_t i = 0; i < row_floats; ++i) {
    row[i] =
        static_cast<float>(key % 1000) + 1000.0f * static_cast<float>(base) + 0.125f * static_cast<float>(i);
  }
  return row;
}

int DeviceWorld::TryInstall(const std::vector<Answer>& answers, std::vector<Update>* victims) {
  std::vector<std::vector<int64_t>> bases;
  std::vector<std::vector<uint8_t>> admit;
  std::vector<std::vector<float>> rows;
  std::vector<HetDevAnswer> given;
  for (const Answer& answer : answers) {
    bases.emplace_back(answer.keys.size(), answer.base);
    admit.emplace_back(answer.keys.size(), answer.admit ? 1 : 0);
    rows.emplace_back();
    for (const int64_t key : answer.keys) {
      const std::vector<float> row = StoredRow(key, answer.base, configs_[answer.use].row_floats);
      rows.back().insert(rows.back().end(), row.begin(), row.end());
    }
    given.push_back({answer.use, answer.keys.size(), answer.keys.data(), bases.back().data(),
                     admit.back().data(), rows.back().data()});
  }
  HetDevExport result;
  const int code = HetDevInstall(context_, call_, &batch_, given.data(), static_cast<uint32_t>(given.size()),
                                 nullptr, &result);
  if (code == HET_DEV_OK) *victims = Copied(result);
  return code;
}

std::vector<Update> DeviceWorld::Install(const std::vector<Answer>& answers) {
  std::vector<Update> victims;
  EXPECT_EQ(TryInstall(answers, &victims), HET_DEV_OK) << HetDevError();
  return victims;
}

std::vector<Update> DeviceWorld::Step(const Keys& keys, int64_t base, uint32_t use) {
  NewStep();
  SetBatch({{keys, use}});
  const Keys missing = Lookup().keys(use);
  std::vector<Update> victims = Install({{use, missing, base, true}});
  Gather();
  return victims;
}

std::vector<Update> DeviceWorld::Train(const Keys& keys, float gradient, std::vector<Update>* victims,
                                       uint32_t use) {
  const std::vector<Update> left = Step(keys, 0, use);
  if (victims != nullptr) *victims = left;
  const std::vector<float> gradients(keys.size() * configs_[use].dim, gradient);
  const DeviceArray on_device(context_, gradients.data(), gradients.size() * sizeof(float));
  features_[0].gradients = on_device.as<float>();
  HetDevWanted wanted;
  HetDevSummed summed;
  EXPECT_EQ(HetDevSum(context_, call_, &batch_, 1, nullptr, nullptr, &wanted, &summed), HET_DEV_OK)
      << HetDevError();
  EXPECT_EQ(wanted.n, 0u);
  HetDevExport due;
  EXPECT_EQ(HetDevTick(context_, call_, &batch_, nullptr, &due), HET_DEV_OK) << HetDevError();
  features_[0].gradients = nullptr;
  return Copied(due);
}

std::vector<Update> DeviceWorld::Copied(const HetDevExport& exported) const {
  std::vector<Update> result;
  for (uint32_t t = 0; t < exported.n; ++t) {
    const HetDevUpdates& of = exported.of[t];
    const uint32_t floats = configs_[of.use].row_floats;
    for (uint64_t i = 0; i < of.n; ++i) {
      result.push_back({of.use, of.keys[i], of.ticks[i],
                        std::vector<float>(of.updates + i * floats, of.updates + (i + 1) * floats)});
    }
  }
  return result;
}

DeviceWorld::Row DeviceWorld::Inspect(int64_t key, uint32_t use) const {
  Row row;
  row.row.resize(configs_[use].row_floats);
  row.update.resize(configs_[use].row_floats);
  EXPECT_EQ(
      HetDevInspect(context_, tables_[use], key, nullptr, &row.state, row.row.data(), row.update.data()),
      HET_DEV_OK)
      << HetDevError();
  return row;
}

HetDevTableState DeviceWorld::State(uint32_t use) const {
  HetDevTableState state;
  EXPECT_EQ(HetDevState(context_, tables_[use], nullptr, &state), HET_DEV_OK) << HetDevError();
  return state;
}

}  // namespace het::testing
