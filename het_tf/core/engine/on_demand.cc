#include "het_tf/core/engine/on_demand.h"

#include <algorithm>
#include <string>
#include <utility>

namespace het {
namespace {

Span<const OthersKeys> KeysOf(const Vector<OthersKeys>& keys) { return {keys.data(), keys.size()}; }

// Returns one of the tables that is among the ids; null: there is none.
const Table* Shared(Span<const TablePtr> tables, const std::vector<uint64_t>& ids) {
  for (const TablePtr& table : tables) {
    if (std::find(ids.begin(), ids.end(), table->schema->id()) != ids.end()) return table.get();
  }
  return nullptr;
}

Status HeldBack(const Table& table, const std::string& what) {
  return FailedPrecondition(
      "rows of table '" + table.schema->spec().name + "' travel on demand (shard(sync=\"on_demand\")), and " +
      what +
      " is not the next batch of the stream: other workers hold back updates that it needs. Call "
      "het_tf.flush(all_ranks=True) on all ranks before it; fit of a distributed model does so "
      "before an evaluation. A loop that was left in the middle, and a step without a gradient, need it too");
}

}  // namespace

OnDemand::Layer* OnDemand::Find(uint64_t lane) {
  const auto found = layers_.find(lane);
  return found == layers_.end() ? nullptr : &found->second;
}

void OnDemand::Plan(const BatchCall& call, bool early) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Find(call.layer) != nullptr) return;
  Layer layer;
  layer.exact = true;
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

void OnDemand::EndPass(uint64_t lane, uint64_t place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Layer* const layer = Find(lane);
  if (layer == nullptr) return;
  layer->ends.insert(place);
  CloseIfEnded(layer);
}

void OnDemand::Settle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [lane, layer] : layers_) {
    Close(&layer);
    // A gradient that comes later is of an unknown step: it is sent at once.
    layer.runs = false;
    layer.now.reset();
  }
}

Status OnDemand::Require(Span<const TablePtr> tables, const char* what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [lane, layer] : layers_) {
    const Table* const shared = layer.held_back ? Shared(tables, layer.tables) : nullptr;
    if (shared != nullptr) return HeldBack(*shared, what);
  }
  return Status();
}

void OnDemand::Forget(uint64_t table) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto layer = layers_.begin(); layer != layers_.end();) {
    const std::vector<uint64_t>& tables = layer->second.tables;
    const bool has = std::find(tables.begin(), tables.end(), table) != tables.end();
    layer = has ? layers_.erase(layer) : std::next(layer);
  }
}

Status OnDemand::Begin(StepCall* call, const ComingSteps::Found& found, bool training) {
  if (training) HET_RETURN_IF_ERROR(LeaveKept(call->call.layer));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (layers_.empty()) return Status();
  const uint64_t place = found.global == nullptr ? 0 : found.place;
  Layer* const own = training ? Find(call->call.layer) : nullptr;
  for (const auto& [lane, layer] : layers_) {
    const Table* const shared = layer.held_back ? Shared(call->call.tables, layer.tables) : nullptr;
    if (shared == nullptr || (&layer == own && layer.Expects(place))) continue;
    if (!training) return HeldBack(*shared, "a lookup outside of training");
    if (&layer == own) return HeldBack(*shared, "this lookup");
    return FailedPrecondition(
        "table '" + shared->schema->spec().name +
        "' is looked up by two layers, and its rows travel on demand: neither layer knows what the other one "
        "needs. Give both features to one EmbeddingCollection; or, to train the other layer after the "
        "stream, "
        "call het_tf.flush(all_ranks=True) on all ranks before it");
  }
  if (own == nullptr) return Status();
  own->held_back = own->runs = true;
  own->kept = false;
  own->number = 0;
  own->place = place;
  own->now = found.global;
  own->coming.reset();
  own->ends.erase(own->ends.begin(), own->ends.lower_bound(place));
  call->follows = own->exact && own->now != nullptr;
  own->follows = own->follows || call->follows;
  return Status();
}

Status OnDemand::LeaveKept(uint64_t lane) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Layer* const layer = Find(lane);
    if (layer == nullptr || !layer->runs || !std::exchange(layer->kept, false)) return Status();
  }
  return SkipStep(lane);
}

void OnDemand::SetNumber(uint64_t lane, uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Layer* const layer = Find(lane);
  if (layer != nullptr) layer->number = number;
}

Status OnDemand::NoteKept(uint64_t lane, uint64_t number) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Layer* const layer = Find(lane);
    if (layer == nullptr || layer->number != number || !layer->runs) return Status();
    layer->kept = true;
  }
  const std::shared_ptr<const OthersUse> others = BeforeTick(lane);
  if (others == nullptr) return Status();
  if (!SuccessorIsKnown(lane)) return ClientDriver::Call(driver_)->PushPastBound();
  OthersUse use = *others;
  use.outdated = {};  // their ticks come later
  CachedWrite write;
  write.others = &use;
  return ClientDriver::Call(driver_)->Write(&write, 0, nullptr);
}

bool OnDemand::SuccessorIsKnown(uint64_t lane) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Layer* const layer = Find(lane);
  return layer != nullptr && layer->coming != nullptr;
}

Status OnDemand::RequireRunning(uint64_t lane, uint64_t number, const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Layer* const layer = Find(lane);
  if (layer == nullptr || layer->number == number) return Status();
  return FailedPrecondition(
      "rows of " + what +
      " travel on demand (shard(sync=\"on_demand\")), and a gradient is applied after the layer's next "
      "lookup: "
      "other workers have read the rows without it. Apply each batch's gradient before the next batch");
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
  // What others have updated in an unknown step is to be checked.
  if (layer->now == nullptr) Unfollow(layer);
  layer->now.reset();
  layer->coming.reset();
  if (!known) {
    lock.unlock();  // plans go on
    HET_RETURN_IF_ERROR(ClientDriver::Call(driver_)->PushPastBound());
    lock.lock();
  }
  layer->runs = false;
  CloseIfEnded(layer);
  return Status();
}

Status OnDemand::SkipStep(uint64_t lane) {
  const std::shared_ptr<const OthersUse> others = BeforeTick(lane);
  CachedWrite write;
  write.others = others.get();
  if (others != nullptr) HET_RETURN_IF_ERROR(ClientDriver::Call(driver_)->Write(&write, 0, nullptr));
  return EndStep(lane);
}

// All updates are at the server.
void OnDemand::Close(Layer* layer) {
  Unfollow(layer);
  layer->held_back = false;
  layer->place = 0;
}

void OnDemand::CloseIfEnded(Layer* layer) {
  if (!layer->runs && layer->held_back && layer->ends.count(layer->place) != 0) Close(layer);
}

void OnDemand::Unfollow(Layer* layer) {
  if (!std::exchange(layer->follows, false)) return;
  const ClientDriver::Lock client(driver_);
  for (uint64_t table : layer->tables) {
    if (client->HasTable(table)) client->cache(table)->marks().UnfollowAll();
  }
}

}  // namespace het
