#include "het_tf/core/engine/cached_backend.h"

#include "het_tf/core/plan/row_ops.h"

namespace het {

void ClientBackend::Invalidate(const Table& table, Span<const Key> keys) {
  const ClientDriver::Lock client(driver_);
  client->Invalidate(table.schema->id(), keys);
}

void ClientBackend::InvalidateAll(const Table& table) {
  const ClientDriver::Lock client(driver_);
  if (client->HasTable(table.schema->id())) client->ForgetTable(table.schema->id());
}

Vector<const BatchPlan::Group*> CachedBackend::GroupsOf(const StepCall& call) const {
  Vector<const BatchPlan::Group*> groups;
  for (const BatchPlan::Group& group : call.step->plan.groups()) {
    if (group.entries != 0 && Serves(call.call.tables[group.table]->options)) groups.push_back(&group);
  }
  return groups;
}

Status CachedBackend::Lookup(StepCall* call, Span<float* const> out) {
  Step* const step = call->step;
  const Vector<const BatchPlan::Group*> groups = GroupsOf(*call);
  if (!call->planned) {
    const TraceScope planning(driver_->trace(), TraceKind::kPlan);
    step->ForTasks(call->pool, groups.size(), [&](size_t i) { step->plan.Unique(*groups[i]); });
  }
  const ClientDriver::Call client(driver_);
  CachedRead read;
  read.planned = call->planned_step;
  read.follows = call->follows;
  for (const BatchPlan::Group* group : groups) {
    const Table& table = *call->call.tables[group->table];
    if (!client->HasTable(table.schema->id())) return TableIsGone(table);
    read.parts.push_back({table.schema->id(), group->partition, group->uniques, step->plan.keys(*group),
                          step->plan.hashes(*group), step->plan.rows(*group), step->rows(*group),
                          read.planned == 0 ? nullptr : step->next_use.data() + group->first});
  }
  HET_RETURN_IF_ERROR(client->Read(&read, call->number));
  if (out.empty()) return Status();
  const TraceScope copying(driver_->trace(), TraceKind::kCopy);
  step->ForTasks(call->pool, groups.size(), [&](size_t i) {
    const size_t dim = call->call.tables[groups[i]->table]->schema->dim();
    CopyToFeatures(step->plan, *groups[i], step->rows(*groups[i]), dim, out);
  });
  return Status();
}

Status CachedBackend::Tick(StepCall* call, const ApplyArgs& args) {
  const ClientDriver::Call client(driver_);
  CachedWrite write;
  for (const BatchPlan::Group* group : GroupsOf(*call)) {
    const Table& table = *call->call.tables[group->table];
    if (!client->HasTable(table.schema->id())) return TableIsGone(table);
    BatchPlan& plan = call->step->plan;
    write.parts.push_back({table.schema->id(), group->partition, group->uniques, plan.keys(*group),
                           plan.hashes(*group), plan.rows(*group), call->step->values(*group),
                           call->step->touched(*group), args.learning_rates[group->table], args.scale});
  }
  write.others = call->others;
  return client->Write(&write, call->number, call->pool);
}

void CachedBackend::End(uint64_t number) {
  const ClientDriver::Lock client(driver_);
  client->EndLookup(number);
}

Status CachedBackend::Add(const Schema& schema, const TableOptions& options) {
  const ClientDriver::Lock client(driver_);
  return client->AddTable(schema, *options.cache);
}

void CachedBackend::Remove(uint64_t table) {
  const ClientDriver::Lock client(driver_);
  client->RemoveTable(table);
}

Status CachedBackend::Flush() {
  const ClientDriver::Call client(driver_);
  return client->Flush();
}

Status CachedBackend::Stats(const Table& table, TableStats* stats) {
  const ClientDriver::Lock client(driver_);
  const uint64_t id = table.schema->id();
  if (!client->HasTable(id)) return TableIsGone(table);
  const TableCache& cache = *client->cache(id);
  const CacheConfig& config = cache.policy().config();
  stats->cache = {client->Stats(id),     cache.lines().size(), cache.capacity(),
                  cache.unsent().keys(), cache.bytes(),        config.wire,
                  config.pull_bound,     config.push_bound,    {}};
  return Status();
}

}  // namespace het
