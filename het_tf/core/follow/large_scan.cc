#include "het_tf/core/follow/large_scan.h"

#include <algorithm>
#include <new>

namespace het::follow {
namespace {

uint64_t Nanoseconds(double seconds) { return static_cast<uint64_t>(seconds * 1e9); }

}  // namespace

void LargeScan::Follow(const ChangesPage& page, uint64_t now) {
  if (poll_ == 0) return;
  if (since_.incarnation != page.start.incarnation) {
    since_ = page.start;
    cursor_ = ChangesCursor();
    due_ = now;
  } else if (page.kind == ChangesKind::kWhole || page.next.begins()) {
    since_.number = std::max(since_.number, page.start.number);
  }
}

void LargeScan::Stop() {
  since_ = Position();
  due_ = UINT64_MAX;
}

void LargeScan::Restart() {
  cursor_ = ChangesCursor();
  due_ = began_ + Nanoseconds(poll_);
}

ChangesRequest LargeScan::Ask(const ChangesRequest& like, uint64_t now) {
  if (cursor_.begins()) began_ = now;
  ChangesRequest request;
  request.since = since_;
  request.cursor = cursor_;
  request.max_bytes = like.max_bytes;
  request.format = like.format;
  request.large = true;
  return request;
}

bool LargeScan::Take(const ChangeAnswer& answer, PartitionScan* scan, uint64_t now) {
  Status status = answer.status;
  bool noted = true;
  if (status.ok()) {
    const ChangesPage& page = answer.page;
    if (page.kind == ChangesKind::kWhole || page.start.incarnation != since_.incarnation) {
      Stop();
      return false;
    }
    const uint64_t before = scan->rows();
    try {
      status = scan->Add(page);
    } catch (const std::bad_alloc&) {
      status = Status(Code::kResourceExhausted, "out of memory");
    }
    noted = status.ok();
    rows_ += scan->rows() - before;
    for (const Bytes& chunk : page.chunks) bytes_ += chunk.size();
  }
  if (!status.ok()) {
    const double seconds = static_cast<double>(now) * 1e-9;
    backoff_.Failed(backoff_config_, seconds, status.message(), /*jitter=*/0.5);
    due_ = now + Nanoseconds(std::max(0.0, backoff_.not_before() - seconds));
    return noted;
  }
  backoff_.Succeeded();
  cursor_ = answer.page.next;
  due_ = now;
  if (!begins()) return true;
  since_.number = std::max(since_.number, answer.page.start.number);
  ++scans_;
  Restart();
  return true;
}

}  // namespace het::follow
