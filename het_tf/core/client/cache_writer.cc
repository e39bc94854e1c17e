#include "het_tf/core/client/cache_writer.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace het {
namespace {

// With fewer keys the ticks end before a second thread has woken up.
constexpr size_t kParallelKeys = 4096;

}  // namespace

Status CacheWriter::FetchMissing(CachedWrite* write) {
  struct Wanted {
    CachedWrite::Part* part;
    Vector<Key> keys{};
    Vector<uint64_t> hashes{};
    Vector<size_t> at{};
    Vector<uint32_t> rows{};
    Vector<const float*> values{};
  };
  std::deque<Wanted> all;
  for (CachedWrite::Part& part : write->parts) {
    TableCache& cache = tables_->at(part.table);
    const RowStore& lines = cache.lines();
    Wanted wanted{&part};
    for (size_t u = 0; u < part.uniques; ++u) {
      if (!part.touched[u]) continue;
      uint32_t& line = part.rows[u];
      if (line >= lines.end() || lines.meta(line).key != part.keys[u] || !lines.live(line)) {
        line = lines.Find(part.keys[u], part.hashes[u]);
      }
      if (line != kNoRow && !cache.marks().invalid(line)) continue;
      wanted.keys.push_back(part.keys[u]);
      wanted.hashes.push_back(part.hashes[u]);
      wanted.at.push_back(u);
    }
    if (!wanted.keys.empty()) all.push_back(std::move(wanted));
  }
  if (all.empty()) return Status();
  // Cached rows must stay until the others have come.
  for (const CachedWrite::Part& part : write->parts) {
    TableCache& cache = tables_->at(part.table);
    const uint32_t until = cache.numbers().Until(LookupNumbers::kNoStep);
    for (size_t u = 0; u < part.uniques; ++u) {
      if (part.touched[u] && part.rows[u] != kNoRow) cache.marks().Hold(part.rows[u], until);
    }
  }
  CachedRead read;
  for (Wanted& wanted : all) {
    wanted.rows.resize(wanted.keys.size());
    wanted.values.resize(wanted.keys.size());
    read.parts.push_back({wanted.part->table, wanted.part->partition, wanted.keys.size(), wanted.keys.data(),
                          wanted.hashes.data(), wanted.rows.data(), wanted.values.data()});
  }
  HET_RETURN_IF_ERROR(reader_->Await(reader_->Begin(&read, LookupNumbers::kNoStep).get()));
  for (const Wanted& wanted : all) {
    for (size_t i = 0; i < wanted.at.size(); ++i) wanted.part->rows[wanted.at[i]] = wanted.rows[i];
  }
  return Status();
}

void CacheWriter::NoteAges(const CachedWrite& write, double now) {
  for (const CachedWrite::Part& part : write.parts) {
    TableCache& cache = tables_->at(part.table);
    if (cache.ages() == nullptr) continue;
    for (size_t u = 0; u < part.uniques; ++u) {
      if (part.touched[u] && cache.lines().pending(part.rows[u]) == 0) cache.ages()->Add(part.rows[u], now);
    }
  }
}

// Cannot fail: all rows have updates. Rows of different parts are different rows.
void CacheWriter::Tick(CachedWrite* write, uint64_t step, ThreadPool* pool) {
  const TraceScope ticking(trace_, TraceKind::kTick);
  size_t keys = 0;
  for (const CachedWrite::Part& part : write->parts) {
    keys += part.uniques;
    tables_->at(part.table).numbers().End(step);
  }
  auto tick = [&](size_t i) {
    CachedWrite::Part& part = write->parts[i];
    TableCache& cache = tables_->at(part.table);
    const TableSchema& schema = *cache.schema();
    float* const scratch = write->scratch.data() + i * (write->scratch.size() / write->parts.size());
    for (size_t u = 0; u < part.uniques; ++u) {
      const size_t next = u + Lines::kAhead;
      if (next < part.uniques && part.touched[next]) cache.unsent().PrefetchTick(part.rows[next]);
      const uint32_t line = part.rows[u];
      if (!part.touched[u]) continue;
      schema.Tick(part.learning_rate, part.sums + u * schema.dim(), part.scale, scratch,
                  cache.lines().clock(line), cache.lines().data(line), cache.unsent().UpdateOf(line));
      cache.lines().AddTick(line);
    }
  };
  ForEach(keys >= kParallelKeys ? pool : nullptr, write->parts.size(), tick);
  for (const CachedWrite::Part& part : write->parts) {
    TableCache& cache = tables_->at(part.table);
    for (size_t u = 0; u < part.uniques; ++u) cache.counters().ticks += part.touched[u] != 0;
  }
}

Status CacheWriter::Write(CachedWrite* write, uint64_t step, ThreadPool* pool) {
  HET_RETURN_IF_ERROR(exchange_->fatal());
  HET_RETURN_IF_ERROR(FetchMissing(write));
  size_t dim = 0;
  for (CachedWrite::Part& part : write->parts) {
    TableCache& cache = tables_->at(part.table);
    dim = std::max<size_t>(dim, cache.schema()->dim());
    for (size_t u = 0; u < part.uniques; ++u) {
      const size_t next = u + Lines::kAhead;
      if (next < part.uniques && part.touched[next]) cache.lines().PrefetchState(part.rows[next]);
      if (part.touched[u]) cache.unsent().UpdateOf(part.rows[u]);
    }
  }
  write->scratch.resize(write->parts.size() * dim);
  const double now = tables_->limits_ages() ? exchange_->Now() : 0;
  if (tables_->limits_ages()) NoteAges(*write, now);
  Tick(write, step, pool);
  if (write->others != nullptr) MarkMoved(write->others->outdated);
  const uint64_t first_frame = pushes_->next_frame();
  try {
    {
      const TraceScope pushing(trace_, TraceKind::kPush);
      pushes_->OfStep(*write, now);
    }
    waiter_->Progress();
    const auto wait = [&] {
      return write->others == nullptr
                 ? WaitForPushBound(*write)
                 : waiter_->UntilApplied(write->others->exact ? UINT64_MAX : first_frame, "a push");
    };
    Status status = wait();
    if (status.ok()) status = waiter_->UntilKeptFit();
    // The wait may have brought a new incarnation with an earlier state.
    if (status.ok()) status = wait();
    pushes_->Trim();
    return status;
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted,
                  "out of memory while pushing; the updates of this step were made and are kept, and go out "
                  "with the next one");
  }
}

uint64_t CacheWriter::UnappliedTicks(uint64_t table, Key key) {
  TableCache& cache = tables_->at(table);
  uint64_t ticks = 0;
  const uint32_t line = cache.lines().Find(key);
  if (line != kNoRow) ticks += cache.lines().pending(line);
  if (const WriteBackQueue::Queued* queued = cache.unsent().queue().Find(key)) ticks += queued->ticks;
  return ticks + exchange_->session(tables_->PartitionOf(cache, key))->log().UnappliedTicks(table, key);
}

Status CacheWriter::WaitForPushBound(const CachedWrite& write) {
  auto over_bound = [&](const CachedWrite::Part& part) {
    const TableCache& cache = tables_->at(part.table);
    const SyncPolicy sync = cache.policy().sync();
    if (!sync.bounds_pushes() || !exchange_->session(part.partition)->log().unapplied()) return false;
    const auto waits = [&](size_t u) {
      const uint64_t unapplied = UnappliedTicks(part.table, part.keys[u]);
      if (!sync.MustWait(unapplied, /*clock=*/0)) return false;  // bounds grow with clocks
      // The row may have left since its tick, and another one may be in its line.
      const uint32_t line = cache.lines().Find(part.keys[u]);
      if (!sync.MustWait(unapplied, line == kNoRow ? 0 : cache.lines().clock(line))) return false;
      // A lower base leaves ticks unsent until the row's next tick.
      return exchange_->session(part.partition)->log().UnappliedTicks(part.table, part.keys[u]) > 0;
    };
    for (size_t u = 0; u < part.uniques; ++u) {
      if (part.touched[u] && waits(u)) return true;
    }
    return false;
  };
  return waiter_->Until([&] { return std::none_of(write.parts.begin(), write.parts.end(), over_bound); },
                        "a push");
}

void CacheWriter::MarkMoved(Span<const OthersKeys> rows) {
  for (const OthersKeys& part : rows) {
    TableCache& cache = tables_->at(part.table);
    for (size_t i = 0; i < part.keys.size(); ++i) {
      const uint32_t line = cache.lines().Find(part.keys[i], part.hashes[i]);
      if (line != kNoRow) cache.marks().Outdate(line);
    }
  }
}

}  // namespace het
