#include "het_tf/core/engine/on_demand.h"

#include <algorithm>
#include <string>

namespace het {
namespace {

Span<const OthersKeys> KeysOf(const Vector<OthersKeys>& keys) { return {keys.data(), keys.size()}; }

bool Share(const std::vector<uint64_t>& tables, const std::vector<uint64_t>& others) {
  return std::any_of(tables.begin(), tables.end(), [&others](uint64_t table) {
    return std::find(others.begin(), others.end(), table) != others.end();
  });
}

const std::string& NameOf(const BatchCall& call) { return call.tables[0]->schema->spec().name; }

}  // namespace

OnDemand::Layer* OnDemand::Find(uint64_t lane) {
  const auto found = layers_.find(lane);
  return found == layers_.end() ? nullptr : &found->second;
}

void OnDemand::Plan(const BatchCall& call, bool early, bool summed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Find(call.layer) != nullptr) return;
  Layer layer;
  layer.exact = true;
  layer.summed = summed;
  bool subscribes = false;
  for (const TablePtr& table : call.tables) {
    const SyncPolicy sync = table->options.cache ? table->options.cache->sync() : SyncPolicy();
    layer.tables.push_back(table->schema->id());
    layer.exact = layer.exact && sync.pull.most == 0 && sync.push.most == 0;
    subscribes = subscribes || sync.subscribes;
  }
  if (!layer.exact) layer.ahead = uint64_t{1} + subscribes + early;
  layers_.emplace(call.layer, std::move(layer));
}

void OnDemand::FollowStream(Layer* layer) {
  if (!layer->exact || std::exchange(layer->follows, true)) return;
  const ClientDriver::Lock client(driver_);
  for (uint64_t table : layer->tables) {
    if (!client->HasTable(table)) continue;
    client->cache(table)->policy().FollowStream();
    client->cache(table)->marks().OutdateAll();
  }
}

Status OnDemand::OnOtherBatch(const BatchCall& call, const Layer& layer) {
  if (!layer.exact) return ClientDriver::Call(driver_)->PushPastBound();
  return FailedPrecondition(
      "rows of table '" + NameOf(call) +
      "' travel on demand, and workers have held back rows that this lookup needs: it is not of the batch "
      "that "
      "was planned next. If a loop was left in the middle of the stream, or a step had no gradient, call "
      "het_tf.flush(all_ranks=True) on all ranks before the next training step");
}

Status OnDemand::CheckAlone(const BatchCall& call, const Layer& layer) {
  for (const auto& [lane, other] : layers_) {
    const bool runs = !other.any_next && other.next == 0;
    if (&other == &layer || !runs || !Share(layer.tables, other.tables)) continue;
    return FailedPrecondition(
        "table '" + NameOf(call) +
        "' is looked up by two layers in a step, and its rows travel on demand: neither layer knows what the "
        "other one needs. Give both features to one EmbeddingCollection");
  }
  return Status();
}

Status OnDemand::BeginStep(const BatchCall& call, const ComingSteps::Found& found) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Layer* const layer = Find(call.layer);
  if (layer == nullptr) return Status();
  const uint64_t place = found.global == nullptr ? 0 : found.place;
  HET_RETURN_IF_ERROR(CheckAlone(call, *layer));
  if (layer->summed && place == 0) {
    return FailedPrecondition(
        "rows of table '" + NameOf(call) +
        "' travel on demand and their gradients are summed, and this lookup is of a batch that was not "
        "planned: the workers may not agree on who updates a row. Read shard(sync=\"on_demand\") by a new "
        "iterator, or train without accumulate");
  }
  if (!layer->any_next && (place == 0 || place != layer->next)) {
    HET_RETURN_IF_ERROR(OnOtherBatch(call, *layer));
  }
  FollowStream(layer);
  layer->any_next = false;
  layer->next = 0;
  layer->place = place;
  layer->now = found.global;
  layer->coming.reset();
  return Status();
}

std::shared_ptr<const GlobalStep> OnDemand::Running(uint64_t lane) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Layer* const layer = Find(lane);
  return layer == nullptr ? nullptr : layer->now;
}

std::shared_ptr<const OthersUse> OnDemand::BeforeTick(uint64_t lane) {
  struct Kept {
    std::shared_ptr<const GlobalStep> now, coming;  // which `use` names
    OthersUse use;
  };
  const std::lock_guard<std::mutex> lock(mutex_);
  Layer* const layer = Find(lane);
  if (layer == nullptr || layer->now == nullptr) return nullptr;
  layer->coming = coming_->Behind(lane, layer->place, layer->ahead);
  const auto kept = std::make_shared<Kept>(Kept{layer->now, layer->coming, {}});
  kept->use.exact = layer->exact;
  if (layer->exact) kept->use.outdated = KeysOf(kept->now->outdated());
  if (kept->coming != nullptr) kept->use.wanted = KeysOf(kept->coming->others());
  return {kept, &kept->use};
}

Status OnDemand::EndStep(uint64_t lane) {
  std::unique_lock<std::mutex> lock(mutex_);
  Layer* const layer = Find(lane);
  if (layer == nullptr) return Status();
  const bool known = layer->coming != nullptr;
  if (layer->exact && layer->now == nullptr) MarkAllMoved(*layer);
  layer->now.reset();
  layer->coming.reset();
  if (!known) {
    lock.unlock();  // plans go on
    HET_RETURN_IF_ERROR(ClientDriver::Call(driver_)->PushPastBound());
    lock.lock();
  }
  layer->any_next = !known;
  layer->next = known ? layer->place + 1 : 0;
  return Status();
}

Status OnDemand::SkipStep(uint64_t lane) {
  const std::shared_ptr<const OthersUse> others = BeforeTick(lane);
  CachedWrite write;
  write.others = others.get();
  if (others != nullptr) HET_RETURN_IF_ERROR(ClientDriver::Call(driver_)->Write(&write, 0, nullptr));
  return EndStep(lane);
}

void OnDemand::OnFlush() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [lane, layer] : layers_) {
    // Of a step that had no gradient it is not known what others have done in it.
    if (layer.exact && !layer.any_next && layer.next == 0) MarkAllMoved(layer);
    layer.any_next = true;
  }
}

void OnDemand::Forget(uint64_t table) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto layer = layers_.begin(); layer != layers_.end();) {
    layer = Share(layer->second.tables, {table}) ? layers_.erase(layer) : std::next(layer);
  }
}

void OnDemand::MarkAllMoved(const Layer& layer) {
  const ClientDriver::Lock client(driver_);
  for (uint64_t table : layer.tables) {
    if (client->HasTable(table)) client->cache(table)->marks().OutdateAll();
  }
}

}  // namespace het
