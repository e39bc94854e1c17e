#include "het_tf/core/engine/caches.h"

namespace het {

Status Caches::Flush() {
  Status first;
  for (const auto& backend : parts_->backends) {
    const Status status = backend->Flush();
    if (first.ok()) first = status;
  }
  return first;
}

void Caches::Settle() { parts_->lookahead->Settle(); }

Status Caches::Refresh() {
  HET_RETURN_IF_ERROR(Flush());
  ClientDriver::Lock(&parts_->driver)->ForgetClean();
  return Status();
}

void Caches::MarkDurable() { ClientDriver::Lock(&parts_->driver)->MarkDurable(); }

Status Caches::SetWorkers(const std::string& name, uint32_t workers) {
  HET_ASSIGN_OR_RETURN(const TablePtr table, parts_->catalog.Find(name));
  const auto& cache = table->options.cache;
  if (!cache || !cache->staleness || cache->workers == workers) return Status();
  HET_RETURN_IF_ERROR(Flush());
  HET_RETURN_IF_ERROR(parts_->backends.Of(table->options).SetWorkers(*table, workers));
  parts_->catalog.SetWorkers(table.get(), workers);
  return Status();
}

}  // namespace het
