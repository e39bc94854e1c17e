// Rows that travel on demand (window.h).
#include <algorithm>
#include <string>
#include <utility>

#include "het_tf/ext/streams/cc/window.h"

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
      "rows of table '" + table.schema->spec().name + "' travel on demand (shard_on_demand), and " + what +
      " is not the next batch of the stream: other workers hold back updates that it needs. Call "
      "het_tf.flush(all_ranks=True) on all ranks before it; fit of a distributed model does so "
      "before an evaluation. A loop that was left in the middle, and a step without a gradient, need it too");
}

}  // namespace

Window::Layer* Window::Find(uint64_t id) {
  const auto found = layers_.find(id);
  return found == layers_.end() ? nullptr : &found->second;
}

void Window::AddLayer(const BatchCall& call, bool early) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Find(call.layer) != nullptr) return;
  Layer layer;
  layer.exact = true;
  bool subscribes = false;
  for (const TablePtr& table : call.tables) {
    const SyncPolicy sync = table->options.cache ? table->options.cache->sync() : SyncPolicy();
    layer.tables.push_back(table->schema->id());
    layer.exact = layer.exact && sync.Exact();
    subscribes = subscribes || sync.subscribes;
  }
  if (!layer.exact) layer.ahead = uint64_t{1} + subscribes + early;
  layers_.emplace(call.layer, std::move(layer));
}

void Window::EndPass(uint64_t id, uint64_t place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Layer* const layer = Find(id);
  if (layer == nullptr) return;
  layer->ends.insert(place);
  CloseIfEnded(layer);
}

void Window::Settle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [id, layer] : layers_) {
    Close(&layer);
    // A gradient that comes later is of an unknown step: it is sent at once.
    layer.runs = false;
    layer.now.reset();
  }
}

Status Window::Require(Span<const TablePtr> tables, const char* what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [id, layer] : layers_) {
    const Table* const shared = layer.held_back ? Shared(tables, layer.tables) : nullptr;
    if (shared != nullptr) return HeldBack(*shared, what);
  }
  return Status();
}

void Window::Forget(uint64_t table) {
  coming_.Clear();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto layer = layers_.begin(); layer != layers_.end();) {
    const std::vector<uint64_t>& tables = layer->second.tables;
    const bool has = std::find(tables.begin(), tables.end(), table) != tables.end();
    layer = has ? layers_.erase(layer) : std::next(layer);
  }
}

Status Window::BeginStep(StepCall* step, uint64_t place, std::shared_ptr<const GlobalStep> global,
                         bool training) {
  const BatchCall& call = step->call;
  if (training) HET_RETURN_IF_ERROR(LeaveKept(call.layer));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (layers_.empty()) return Status();
  if (global == nullptr) place = 0;
  Layer* const own = training ? Find(call.layer) : nullptr;
  for (const auto& [id, layer] : layers_) {
    const Table* const shared = layer.held_back ? Shared(call.tables, layer.tables) : nullptr;
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
  own->now = std::move(global);
  own->ends.erase(own->ends.begin(), own->ends.lower_bound(place));
  step->follows = own->exact && own->now != nullptr;
  own->follows = own->follows || step->follows;
  return Status();
}

Status Window::LeaveKept(uint64_t id) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Layer* const layer = Find(id);
    if (layer == nullptr || !layer->runs || !std::exchange(layer->kept, false)) return Status();
  }
  return Update(id, nullptr);
}

Status Window::EndLookup(uint64_t id, uint64_t number) {
  StepUse use;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Layer* const layer = Find(id);
    if (layer == nullptr || layer->number != number || !layer->runs) return Status();
    layer->kept = true;
    use = UseOf(id);
  }
  if (use.others() == nullptr) return Status();
  const ClientDriver::Call client(&parts_->driver);
  if (use.coming == nullptr) return client->PushPastBound();
  use.use.outdated = {};  // their ticks come later
  CachedWrite write;
  write.others = &use.use;
  return client->Write(&write, 0, nullptr);
}

Status Window::CheckUpdate(uint64_t id, uint64_t number, const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Layer* const layer = Find(id);
  if (layer == nullptr || layer->number == number) return Status();
  return FailedPrecondition(
      "rows of " + what +
      " travel on demand (shard_on_demand), and a gradient is applied after the layer's next "
      "lookup: "
      "other workers have read the rows without it. Apply each batch's gradient before the next batch");
}

Owners Window::OwnersOf(uint64_t id, uint32_t workers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Layer* const layer = Find(id);
  if (layer == nullptr || layer->now == nullptr) return {workers};
  return {workers, GlobalStep::InPass(layer->now->place()),
          [step = layer->now](uint64_t table, Key key) { return step->OwnerOf(table, key); }};
}

Window::StepUse Window::UseOf(uint64_t id) {
  StepUse use;
  const Layer* const layer = Find(id);
  if (layer == nullptr || layer->now == nullptr) return use;
  use.now = layer->now;
  use.coming = coming_.Behind(id, layer->place, layer->ahead);
  use.use.exact = layer->exact;
  if (layer->exact) use.use.outdated = KeysOf(use.now->outdated());
  if (use.coming != nullptr) use.use.wanted = KeysOf(use.coming->others());
  return use;
}

Status Window::Update(uint64_t id, const Tick& tick) {
  StepUse use;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    use = UseOf(id);
  }
  if (tick) {
    HET_RETURN_IF_ERROR(tick(use.others()));
  } else if (use.others() != nullptr) {  // others may have a gradient, and need rows next
    CachedWrite write;
    write.others = use.others();
    HET_RETURN_IF_ERROR(ClientDriver::Call(&parts_->driver)->Write(&write, 0, nullptr));
  }
  return EndStep(id, use.coming != nullptr);
}

Status Window::EndStep(uint64_t id, bool successor_known) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Layer* const layer = Find(id);
    if (layer == nullptr) return Status();
    // What others have updated in an unknown step is to be checked.
    if (layer->now == nullptr) Unfollow(layer);
    layer->now.reset();
  }
  // Without the lock: plans go on.
  if (!successor_known) HET_RETURN_IF_ERROR(ClientDriver::Call(&parts_->driver)->PushPastBound());
  const std::lock_guard<std::mutex> lock(mutex_);
  Layer* const layer = Find(id);
  if (layer == nullptr) return Status();
  layer->runs = false;
  CloseIfEnded(layer);
  return Status();
}

// All updates are at the server.
void Window::Close(Layer* layer) {
  Unfollow(layer);
  layer->held_back = false;
  layer->place = 0;
}

void Window::CloseIfEnded(Layer* layer) {
  if (!layer->runs && layer->held_back && layer->ends.count(layer->place) != 0) Close(layer);
}

void Window::Unfollow(Layer* layer) {
  if (!std::exchange(layer->follows, false)) return;
  const ClientDriver::Lock client(&parts_->driver);
  for (uint64_t table : layer->tables) {
    if (client->HasTable(table)) client->cache(table)->marks().UnfollowAll();
  }
}

}  // namespace het
