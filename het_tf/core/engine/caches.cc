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

}  // namespace het
