// What a read asks, and the read itself.
#ifndef HET_TF_CORE_CLIENT_PARTITION_READ_H_
#define HET_TF_CORE_CLIENT_PARTITION_READ_H_

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "het_tf/core/cache/table_cache.h"
#include "het_tf/core/client/device_rows.h"

namespace het {

class RowSink;
struct CachedRead;
struct ReadOp;

// What one read asks about rows of one table in one partition.
struct TableRead {
  TableCache* cache;
  Vector<Key> checks{};
  Vector<Clock> clocks{};  // of the checks
  Vector<Key> fetches{};
  // Subscribed lines, which are not asked about: the partition tells which have moved. They are
  // pinned.
  Vector<uint32_t> trusted{};
  // Rows are for a device: where they go, and the positions of checks and fetches there.
  DeviceRead::Part* device = nullptr;
  Vector<uint32_t> check_at{};
  Vector<uint32_t> fetch_at{};
  bool subscribe = false;  // the request that is on its way subscribes to what it reads

  bool empty() const { return checks.empty() && fetches.empty() && trusted.empty(); }
};

// What one read asks of one partition.
struct PartitionRead {
  ReadOp* op = nullptr;  // null: nobody waits for the answer any more
  Vector<TableRead> tables;

  bool wanted() const { return op != nullptr; }
  // Of a table whose rows are subscribed (CacheConfig::checks "told").
  bool subscribes() const;
};
using PartitionReadPtr = std::shared_ptr<PartitionRead>;

// Lines that may not leave. Pinned as long as they are in here.
class Pins {
 public:
  Pins() = default;
  ~Pins() { Release(); }
  Pins(Pins&& other) noexcept : lines_(std::move(other.lines_)) { other.lines_.clear(); }
  Pins& operator=(Pins&&) = delete;

  // Throws std::bad_alloc.
  void Add(TableCache* cache, uint32_t line) {
    lines_.push_back({cache, line});
    cache->Pin(line);
  }
  void Reserve(size_t more) { lines_.reserve(lines_.size() + more); }
  // Takes over the other's pins.
  void Append(Pins* other) {
    if (lines_.empty()) return lines_.swap(other->lines_);
    lines_.insert(lines_.end(), other->lines_.begin(), other->lines_.end());
    other->lines_.clear();
  }
  void Release() {
    for (auto& [cache, line] : lines_) cache->Unpin(line);
    lines_.clear();
  }
  // The table is dropped with its lines.
  void Forget(const TableCache* cache);

 private:
  Vector<std::pair<TableCache*, uint32_t>> lines_;
};

// Rows that a read without training fetched: they do not enter the cache.
using PrivateRows = std::map<std::pair<const TableCache*, Key>, Vector<float>>;

// A read on its way. Its end takes it from everything that knows it: answers that still come are
// for nobody, and lines may leave. Ends before its client does.
struct ReadOp {
  ReadOp();
  ~ReadOp();
  ReadOp(const ReadOp&) = delete;
  ReadOp& operator=(const ReadOp&) = delete;

  CachedRead* read = nullptr;
  uint64_t token = 0;  // 0: no training: rows are neither admitted nor counted as used
  bool ahead = false;  // its lookup will come: rows are transient until then
  // Rows that are cached and bounded were checked ahead; of a read that is ahead: are checked.
  bool checked = false;
  size_t open_parts = 0;
  Status error;
  std::vector<PartitionReadPtr> parts;
  Pins pins;
  PrivateRows fetched;
  std::unique_ptr<RowSink> sink;

  bool done() const { return open_parts == 0 || !error.ok(); }
  // Nothing that is on its way is for this read any more.
  void Detach();
};

}  // namespace het

#endif  // HET_TF_CORE_CLIENT_PARTITION_READ_H_
