// One step on the device: DeviceTables::Lookup and Apply. device_fetch.cc gets rows from the store.
#include "het_tf/ext/gpu/cc/device_step.h"

#include <algorithm>
#include <new>

#include "het_tf/core/client/client.h"
#include "het_tf/core/plan/step.h"

namespace het {
namespace {

// Larger scratch memory is freed after the call that needed it.
constexpr size_t kScratchKept = size_t{64} << 20;
// A table's rows may be dropped between a read of the store and the installation, by a clear or a restart of
// the partition. A call that meets this so often fails.
constexpr int kMostRounds = 64;
// Turns in which a sum wants rows, if none is dropped that way: the first, and one after each turn that
// evicted other rows of the step, which are no longer pinned by a lookup. Installed rows are pinned, and rows
// compete only within their bucket. So a bucket evicts each of its rows at most once, in consecutive turns,
// and all buckets do so at the same time.
constexpr int kMostTurns = 1 + static_cast<int>(DeviceTable::kBucket);

Status NeverQuiet(const std::string& subject) {
  return Status(Code::kAborted, subject + ": its rows were taken away " + std::to_string(kMostRounds) +
                                    " times while they were fetched. Look at the parameter servers' logs: "
                                    "one of them keeps restarting, or a table is cleared over and over");
}

}  // namespace

std::string DeviceTables::Batch::Subject() const {
  std::string subject = std::string(doing) + (tables.size() == 1 ? " of table '" : " of tables '");
  for (size_t t = 0; t < tables.size(); ++t) subject += (t == 0 ? "" : "', '") + tables[t]->name();
  return subject + "'";
}

Status DeviceTables::Done(int answer, const Batch& batch) {
  return answer == HET_DEV_OK ? Status() : Failed(answer, batch.Subject());
}

// --- a call as the library's structs

Status DeviceTables::Describe(const BatchCall& call, Batch* batch) {
  batch->stream = call.memory.stream;
  for (const TablePtr& given : call.tables) {
    const uint64_t id = given->schema->id();
    const auto it = tables_.find(id);
    if (it == tables_.end() || !client_->HasTable(id)) return TableIsGone(*given);
    HET_RETURN_IF_ERROR(devices_.Check(id));
    DeviceTable* const table = it->second.get();
    if (std::find(batch->tables.begin(), batch->tables.end(), table) != batch->tables.end()) {
      return InvalidArgument("table '" + table->name() +
                             "' is named twice in one call; name it once, and let features share it");
    }
    HetDevUse use = {};
    use.table = table->handle;
    batch->tables.push_back(table);
    batch->uses.push_back(use);
  }
  for (const FeatureIds& given : call.features) {
    HetDevFeature feature = {};
    feature.use = given.table;
    feature.n = given.ids.size();
    feature.ids = given.ids.data();
    feature.has_padding = given.padding_id.has_value() ? 1 : 0;
    feature.padding_id = given.padding_id.value_or(0);
    batch->ids += feature.n;
    batch->floats += feature.n * call.tables[given.table]->schema->dim();
    batch->features.push_back(feature);
  }
  batch->batch = {batch->uses.data(), static_cast<uint32_t>(batch->uses.size()), batch->features.data(),
                  static_cast<uint32_t>(batch->features.size())};
  exports_.reserve(tables_.size());
  return Status();
}

void DeviceTables::Place(const DeviceCalls::Step& step, Batch* batch) {
  for (HetDevUse& use : batch->uses) {
    use.stamp = step.stamp;
    use.pinned_from = calls_.PinnedFrom(step);
  }
}

Status DeviceTables::Room(Scratch* scratch, size_t bytes, const Batch& batch) {
  if (scratch->bytes >= bytes) return Status();
  library_->HetDevFree(context_, scratch->memory);
  *scratch = Scratch();
  HET_RETURN_IF_ERROR(Done(library_->HetDevMalloc(context_, bytes, &scratch->memory), batch));
  scratch->bytes = bytes;
  return Status();
}

void DeviceTables::Trim(Scratch* scratch) {
  if (scratch->bytes <= kScratchKept) return;
  library_->HetDevFree(context_, scratch->memory);
  *scratch = Scratch();
}

Status DeviceTables::CopyGradientsIn(const BatchCall& call, Span<const float* const> gradients,
                                     Batch* batch) {
  HET_RETURN_IF_ERROR(Room(&floats_, batch->floats * sizeof(float), *batch));
  auto* at = static_cast<float*>(floats_.memory);
  for (size_t f = 0; f < batch->features.size(); ++f) {
    HetDevFeature& feature = batch->features[f];
    const size_t floats = feature.n * call.tables[feature.use]->schema->dim();
    feature.gradients = at;
    if (floats > 0) {
      HET_RETURN_IF_ERROR(Done(
          library_->HetDevCopyIn(context_, at, gradients[f], floats * sizeof(float), batch->stream), *batch));
    }
    at += floats;
  }
  return Status();
}

// --- lookup

Status DeviceTables::Lookup(const BatchCall& call, Span<float* const> out, uint64_t token) {
  Batch batch;
  batch.doing = "a lookup";
  HET_RETURN_IF_ERROR(Describe(call, &batch));
  if (batch.ids == 0) return Status();
  bool went = false;
  if (client_->asking()) client_->Progress(0);  // notifications that have come need no fetch
  HET_RETURN_IF_ERROR(Begin(batch.stream, &went));
  if (token != 0 && calls_.stamps_used_up()) HET_RETURN_IF_ERROR(StartStampsAgain());
  DeviceCalls::Step step;
  HET_RETURN_IF_ERROR(calls_.Begin(*library_, context_, token != 0, &step));
  Place(step, &batch);
  batch.trusted.resize(batch.uses.size() * store_.count);
  for (size_t t = 0; t < batch.uses.size(); ++t) {
    TableCache* const cache = client_->cache(batch.tables[t]->schema().id());
    const SyncPolicy sync = cache->policy().sync();
    batch.uses[t].check = sync.bounds_reads();
    if (token == 0) continue;
    cache->BeginLookup(token);
    if (!sync.subscribes) continue;
    batch.asks = true;
    uint8_t* const trusted = batch.trusted.data() + t * store_.count;
    for (uint32_t p = 0; p < store_.count; ++p) trusted[p] = cache->numbers().answered(p);
    batch.uses[t].trusted = trusted;
  }
  if (call.memory.on_device) {
    for (size_t f = 0; f < batch.features.size() && !out.empty(); ++f) batch.features[f].rows = out[f];
    HET_RETURN_IF_ERROR(LookupRows(&batch, step, token != 0));
  } else {
    if (!out.empty()) {
      HET_RETURN_IF_ERROR(Room(&floats_, batch.floats * sizeof(float), batch));
      auto* at = static_cast<float*>(floats_.memory);
      for (HetDevFeature& feature : batch.features) {
        feature.rows = at;
        at += feature.n * call.tables[feature.use]->schema->dim();
      }
    }
    HET_RETURN_IF_ERROR(LookupRows(&batch, step, token != 0));
    for (size_t f = 0; f < batch.features.size() && !out.empty(); ++f) {
      const HetDevFeature& feature = batch.features[f];
      const size_t floats = feature.n * call.tables[feature.use]->schema->dim();
      if (floats == 0) continue;
      HET_RETURN_IF_ERROR(
          Done(library_->HetDevCopyOut(context_, out[f], feature.rows, floats * sizeof(float), batch.stream),
               batch));
    }
    Trim(&floats_);
  }
  if (token != 0) calls_.Keep(token, std::move(step));
  return Status();
}

Status DeviceTables::LookupRows(Batch* batch, const DeviceCalls::Step& step, bool training) {
  for (int round = 0; round < kMostRounds; ++round) {
    // A repeated lookup must not count as a second use.
    HetDevWanted wanted = {};
    HET_RETURN_IF_ERROR(Done(library_->HetDevLookup(context_, step.call(), &batch->batch,
                                                    training && round == 0, batch->stream, &wanted),
                             *batch));
    if (training && round == 0) CountRead(*batch, wanted);
    if (wanted.n == 0 && !batch->asks) return Status();
    bool went = false;
    HET_RETURN_IF_ERROR(Fetch(batch, step.call(), wanted, training, &went));
    batch->asks = false;
    if (went) continue;
    if (wanted.n == 0) return Status();
    return Done(library_->HetDevGather(context_, step.call(), &batch->batch, batch->stream), *batch);
  }
  return NeverQuiet(batch->Subject());
}

void DeviceTables::CountRead(const Batch& batch, const HetDevWanted& wanted) {
  Vector<uint64_t> asked(batch.tables.size());
  for (uint64_t i = 0; i < wanted.n; ++i) ++asked[wanted.use[i]];
  for (size_t t = 0; t < batch.tables.size(); ++t) {
    const uint64_t given = wanted.reads[t] - asked[t];
    batch.tables[t]->Read(wanted.reads[t], wanted.hits[t], batch.uses[t].check ? given : 0);
  }
}

// --- apply

Status DeviceTables::Apply(const BatchCall& call, const ApplyArgs& args, std::vector<uint8_t>* changed) {
  Batch batch;
  batch.doing = "HetApplyGrad";
  HET_RETURN_IF_ERROR(Describe(call, &batch));
  changed->assign(call.tables.size(), 0);
  if (batch.ids == 0) return Status();
  bool went = false;
  HET_RETURN_IF_ERROR(Begin(batch.stream, &went));
  for (uint32_t p = 0; p < store_.count; ++p) HET_RETURN_IF_ERROR(client_->session(p).fatal());
  DeviceCalls::Step step;
  HET_RETURN_IF_ERROR(calls_.Resume(*library_, context_, args.token, &step));
  Place(step, &batch);
  for (size_t t = 0; t < batch.uses.size(); ++t) {
    HetDevUse& use = batch.uses[t];
    const Bound unsent = client_->cache(batch.tables[t]->schema().id())->policy().sync().unsent();
    use.learning_rate = args.learning_rates[t];
    use.push_bound = unsent.most;
    use.push_every = unsent.every;
    use.push_early = unsent.early;
    use.push_from = unsent.from;
  }
  if (call.memory.on_device) {
    for (size_t f = 0; f < batch.features.size(); ++f) batch.features[f].gradients = args.gradients[f];
  } else {
    HET_RETURN_IF_ERROR(CopyGradientsIn(call, args.gradients, &batch));
  }
  HetDevSummed summed = {};
  HET_RETURN_IF_ERROR(Sum(&batch, step, args, &summed));
  Status status;
  if (summed.non_finite) {
    status = NonFiniteGradient(*call.tables[summed.bad_use], summed.bad_key);
  } else if (summed.uniques > 0) {
    for (size_t f = 0; f < batch.features.size(); ++f) {
      if (summed.active[f] && batch.features[f].n > 0) (*changed)[batch.features[f].use] = 1;
    }
    status = Tick(&batch, step, summed, changed);
  }
  if (!call.memory.on_device) Trim(&floats_);
  return status;
}

Status DeviceTables::Sum(Batch* batch, const DeviceCalls::Step& step, const ApplyArgs& args,
                         HetDevSummed* summed) {
  const uint8_t* const active = args.active.empty() ? nullptr : args.active.data();
  // Reached only if rows were dropped more than kMostRounds times.
  constexpr int kMost = kMostRounds * (kMostTurns + 1);
  for (int round = 0; round < kMost; ++round) {
    // Replies to the pushes of victims may have dropped rows: drop them before they are ticked and due.
    bool went = false;
    if (round > 0) HET_RETURN_IF_ERROR(CatchUp(batch->stream, &went));
    HetDevWanted wanted = {};
    *summed = {};
    HET_RETURN_IF_ERROR(Done(library_->HetDevSum(context_, step.call(), &batch->batch, args.scale, active,
                                                 batch->stream, &wanted, summed),
                             *batch));
    if (wanted.n == 0) return Status();
    for (size_t i = 0; i < wanted.n; ++i) ++batch->tables[wanted.use[i]]->absent;
    HET_RETURN_IF_ERROR(Fetch(batch, step.call(), wanted, true, &went));
  }
  return NeverQuiet(batch->Subject());
}

// Whether the push bounds hold if this step's updates are sent by the next call: then no row has more ticks
// that are not applied than its bound allows, since those of earlier steps are when this step ends.
bool DeviceTables::MayPushLate(const Batch& batch, const HetDevSummed& summed) const {
  return summed.overdue == 0 &&
         std::all_of(batch.tables.begin(), batch.tables.end(), [this](const DeviceTable* table) {
           return client_->cache(table->schema().id())->policy().sync().MayPushLate();
         });
}

Status DeviceTables::Tick(Batch* batch, const DeviceCalls::Step& step, const HetDevSummed& summed,
                          std::vector<uint8_t>* changed) {
  const Vector<uint64_t> ticks(summed.ticks, summed.ticks + batch->tables.size());
  HetDevExport due = {};
  const int answer = library_->HetDevTick(context_, step.call(), &batch->batch, batch->stream, &due);
  if (answer != HET_DEV_OK) {
    changed->assign(changed->size(), 0);
    return Failed(answer, batch->Subject());
  }
  calls_.Changed();
  for (size_t t = 0; t < batch->tables.size(); ++t) batch->tables[t]->Ticked(ticks[t]);
  for (uint32_t i = 0; i < due.n; ++i) {
    exports_.push_back({batch->tables[due.of[i].use], due.of[i], false, false});  // there is room
  }
  try {
    const uint64_t of_step = devices_.next_frame();
    if (!MayPushLate(*batch, summed)) {
      HET_RETURN_IF_ERROR(Collect());
      PushExports();
    }
    return devices_.Wait(of_step);
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted,
                  "out of memory while pushing; the updates of this step were made and are kept, and go out "
                  "with the next one");
  }
}

}  // namespace het
