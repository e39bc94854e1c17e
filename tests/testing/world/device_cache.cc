#include "tests/testing/world/device_cache.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "het_tf/core/client/client.h"
#include "het_tf/core/engine/step_store.h"

namespace het::testing {
namespace {

// Draws anew in which order the streams of the host's library work; a GPU has nothing to draw.
void SeedStreams(uint64_t seed) {
  void* const library = dlopen(DeviceLibrary::Get().value()->path().c_str(), RTLD_NOW);
  const auto set = reinterpret_cast<void (*)(uint64_t)>(dlsym(library, "HetDevHostSeed"));
  if (set != nullptr) set(seed);
}

}  // namespace

std::string DeviceLibraryPath() {
  const char* const given = std::getenv("HET_DEVICE_LIBRARY");
  return given == nullptr ? HET_DEVICE_LIBRARY : given;
}

// One feature for each part, a table's keys in one partition.
struct DeviceCache::Batch {
  template <typename Parts>
  Batch(const Parts& parts, const std::map<uint64_t, TablePtr>& by_id) {
    std::map<uint64_t, uint32_t> number;
    for (const auto& part : parts) {
      const auto [at, added] = number.try_emplace(part.table, static_cast<uint32_t>(tables.size()));
      if (added) tables.push_back(by_id.at(part.table));
      features.push_back({at->second, Span<const Key>(part.keys, part.uniques), std::nullopt});
    }
  }
  BatchCall call() const { return {tables, features, 0, {}}; }
  uint32_t dim(size_t feature) const { return tables[features[feature].table]->schema->dim(); }

  std::vector<TablePtr> tables;
  std::vector<FeatureIds> features;
};

DeviceCache::DeviceCache(Client* client, const PartitionId& store, uint64_t seed)
    : client_(client), tables_(client, store) {
  if (!DeviceLibrary::Load(DeviceLibraryPath(), 0).ok()) std::abort();
  SeedStreams(seed);
}

Status DeviceCache::AddTable(const Schema& schema, const CacheConfig& config) {
  HET_RETURN_IF_ERROR(tables_.Add(schema, config));
  by_id_[schema->id()] = std::make_shared<Table>();
  by_id_[schema->id()]->schema = schema;
  return tables_.ConnectWithClient(schema->id(), config);
}

Status DeviceCache::Read(CachedRead* read, uint64_t token) {
  const Batch batch(read->parts, by_id_);
  std::vector<float*> out;
  for (size_t f = 0; f < read->parts.size(); ++f) {
    CachedRead::Part& part = read->parts[f];
    Vector<float>& rows = read->private_rows.emplace_back(part.uniques * batch.dim(f));
    out.push_back(rows.data());
    for (size_t u = 0; u < part.uniques; ++u) part.values[u] = rows.data() + u * batch.dim(f);
  }
  HET_RETURN_IF_ERROR(tables_.Lookup(batch.call(), out, token));
  if (token == 0) return Status();
  kept_.push_back(token);
  if (kept_.size() > StepStore::kKept) Release(kept_.front());
  return Status();
}

Status DeviceCache::Write(const CachedWrite& write, uint64_t token) {
  const Batch batch(write.parts, by_id_);
  std::vector<const float*> gradients;
  for (const CachedWrite::Part& part : write.parts) gradients.push_back(part.sums);
  const std::vector<float> rates(batch.tables.size(), write.parts.empty() ? 0 : write.parts[0].learning_rate);
  const std::vector<uint8_t> active(gradients.size(), 1);
  ApplyArgs args;
  args.token = token;
  args.gradients = gradients;
  args.learning_rates = rates;
  args.active = active;
  std::vector<uint8_t> changed;
  const Status status = tables_.Apply(batch.call(), args, &changed);
  Release(token);
  return status;
}

Status DeviceCache::Flush() {
  HET_RETURN_IF_ERROR(tables_.Flush());
  return client_->Flush();
}

uint64_t DeviceCache::UnappliedTicks(uint64_t table, Key key) {
  const uint64_t unsent = Find(table, key).ticks;  // first: it sends what the last step has left
  return client_->UnappliedTicks(table, key) + unsent;
}

HetDevRowState DeviceCache::Find(uint64_t table, Key key, std::vector<float>* values) {
  const TableSchema& schema = *by_id_.at(table)->schema;
  std::vector<float> row(schema.row_floats());
  const HetDevRowState state = tables_.Inspect(table, key, row.data());
  if (values != nullptr && state.found) values->assign(row.begin(), row.begin() + schema.dim());
  return state;
}

void DeviceCache::Release(uint64_t token) {
  tables_.Release(token);
  kept_.erase(std::remove(kept_.begin(), kept_.end(), token), kept_.end());
}

}  // namespace het::testing
