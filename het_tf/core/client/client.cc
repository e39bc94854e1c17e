#include "het_tf/core/client/client.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace het {
namespace {

// Fewer keys are ticked before a second thread has woken up.
constexpr size_t kParallelKeys = 4096;

}  // namespace

Client::Client(Transport* transport, ClientConfig config)
    : config_(std::move(config)),
      tables_(transport->partitions(), transport->id(0).hash_seed, config_.seed),
      subscriptions_(&tables_),
      exchange_(transport, config_, &tables_, &subscriptions_, this),
      pushes_(&tables_, &exchange_.sessions(), config_.max_frame_bytes),
      durability_(transport, &config_, &tables_, &exchange_.sessions(), &pushes_),
      losses_(transport, &config_, &tables_),
      waiter_(transport, &config_, &exchange_, &durability_, [this](double wait) { Progress(wait); }),
      reader_(&tables_, &exchange_, &subscriptions_, &pushes_, &waiter_) {}

Client::~Client() = default;

// --- tables

Status Client::AddTable(const Schema& schema, const CacheConfig& config) {
  tables_.Add(schema, config);
  return Status();
}

void Client::RemoveTable(uint64_t table) {
  if (!HasTable(table)) return;
  ForgetTable(table);
  for (Session& session : exchange_.sessions()) session.log().RemoveTable(table);
  subscriptions_.RemoveTable(table);
  tables_.Remove(table);
}

void Client::Invalidate(uint64_t table, Span<const Key> keys) {
  early_.DropAll();
  TableCache& cache = tables_.at(table);
  if (cache.device() != nullptr) cache.device()->DropKeys(keys);
  for (Key key : keys) {
    const uint32_t line = cache.lines().Find(key);
    if (line != kNoRow) cache.Drop(line);
    cache.DropQueued([key](Key queued) { return queued == key; });
  }
}

void Client::ForgetTable(uint64_t table) {
  early_.DropAll();
  for (Session& session : exchange_.sessions()) {
    Discard(&session, &tables_.at(table), session.log().DropUnapplied(table));
    session.ForgetEpoch(table);
  }
}

void Client::ForgetClean() {
  early_.DropAll();
  for (const auto& [table, held] : tables_) {
    TableCache* const cache = held.get();
    if (cache->device() != nullptr) cache->device()->DropClean();
    cache->ForEachLine([cache](uint32_t line) {
      if (!cache->HasUnsent(line)) cache->Drop(line);
    });
  }
}

void Client::Reload() {
  if (config_.on_reload == ClientConfig::kKeep) return;
  uint64_t discarded = 0;
  for (const auto& [table, cache] : tables_) {
    discarded -= cache->counters().discarded_ticks;
    ForgetTable(table);
    discarded += cache->counters().discarded_ticks;
  }
  for (Session& session : exchange_.sessions()) {
    session.StartOver();
    durability_.ForgetQuestion(session.partition());
  }
  if (discarded == 0 || !config_.notice) return;
  config_.notice("tables are being loaded: " + std::to_string(discarded) +
                 " updates that had not been sent were discarded. Flush before a restore to keep them");
}

// --- read

std::unique_ptr<ReadOp> Client::BeginRead(CachedRead* read, uint64_t step) {
  return reader_.Begin(read, step);
}

Status Client::FinishRead(ReadOp* op) { return reader_.Finish(op); }

Status Client::Read(CachedRead* read, uint64_t step) {
  // What has come need not be waited for, or asked about.
  if (early_.busy() || subscriptions_.asking()) Progress(0);
  std::unique_ptr<ReadOp> op = early_.Take(step);
  if (op != nullptr) {
    op->read = read;
  } else {
    op = reader_.Begin(read, step);
  }
  if (op->done() && subscriptions_.asking()) Progress(0);  // a question is answered while the step computes
  return reader_.Await(op.get());
}

void Client::ReadEarly(CachedRead* read, uint64_t step) {
  early_.Add(step, reader_.Begin(read, step));
  Progress(0);
}

void Client::SetNextUse(uint64_t table, Key key, uint64_t hash, uint32_t planned) {
  TableCache* const cache = tables_.Find(table);
  const uint32_t line = cache == nullptr ? kNoRow : cache->lines().Find(key, hash);
  if (line != kNoRow) cache->SetNextUse(line, planned);
}

// --- write

Status Client::FetchMissing(CachedWrite* write) {
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
    TableCache& cache = tables_.at(part.table);
    const RowStore& lines = cache.lines();
    Wanted wanted{&part};
    for (size_t u = 0; u < part.uniques; ++u) {
      if (!part.touched[u]) continue;
      uint32_t& line = part.rows[u];
      if (line >= lines.end() || lines.meta(line).key != part.keys[u] || !lines.live(line)) {
        line = lines.Find(part.keys[u], part.hashes[u]);
      }
      if (line != kNoRow && !cache.invalid(line)) continue;
      wanted.keys.push_back(part.keys[u]);
      wanted.hashes.push_back(part.hashes[u]);
      wanted.at.push_back(u);
    }
    if (!wanted.keys.empty()) all.push_back(std::move(wanted));
  }
  if (all.empty()) return Status();
  // Rows that are here must still be here when the others have come.
  for (const CachedWrite::Part& part : write->parts) {
    for (size_t u = 0; u < part.uniques; ++u) {
      if (part.touched[u] && part.rows[u] != kNoRow)
        tables_.at(part.table).HoldForStep(part.rows[u], LookupNumbers::kNoStep);
    }
  }
  CachedRead read;
  for (Wanted& wanted : all) {
    wanted.rows.resize(wanted.keys.size());
    wanted.values.resize(wanted.keys.size());
    read.parts.push_back({wanted.part->table, wanted.part->partition, wanted.keys.size(), wanted.keys.data(),
                          wanted.hashes.data(), wanted.rows.data(), wanted.values.data()});
  }
  HET_RETURN_IF_ERROR(reader_.Await(reader_.BeginMissing(&read).get()));
  for (const Wanted& wanted : all) {
    for (size_t i = 0; i < wanted.at.size(); ++i) wanted.part->rows[wanted.at[i]] = wanted.rows[i];
  }
  return Status();
}

// Nothing in here fails: there are updates for all rows. Rows of different parts are different
// rows.
void Client::Tick(CachedWrite* write, uint64_t step, ThreadPool* pool) {
  const TraceScope ticking(config_.trace, TraceKind::kTick);
  size_t keys = 0;
  for (const CachedWrite::Part& part : write->parts) {
    keys += part.uniques;
    tables_.at(part.table).EndLookup(step);
  }
  auto tick = [&](size_t i) {
    CachedWrite::Part& part = write->parts[i];
    TableCache& cache = tables_.at(part.table);
    const TableSchema& schema = cache.schema();
    for (size_t u = 0; u < part.uniques; ++u) {
      const size_t next = u + TableCache::kLinesAhead;
      if (next < part.uniques && part.touched[next]) cache.PrefetchTick(part.rows[next]);
      const uint32_t line = part.rows[u];
      if (!part.touched[u]) continue;
      schema.Tick(part.learning_rate, part.sums + u * schema.dim(), cache.lines().data(line),
                  cache.UpdateOf(line));
      cache.AddTick(line);
    }
  };
  if (keys >= kParallelKeys) {
    pool->For(write->parts.size(), tick);
  } else {
    for (size_t i = 0; i < write->parts.size(); ++i) tick(i);
  }
  for (const CachedWrite::Part& part : write->parts) {
    TableCache& cache = tables_.at(part.table);
    for (size_t u = 0; u < part.uniques; ++u) cache.counters().ticks += part.touched[u] != 0;
  }
}

Status Client::Write(CachedWrite* write, uint64_t step, ThreadPool* pool) {
  HET_RETURN_IF_ERROR(exchange_.fatal());
  HET_RETURN_IF_ERROR(FetchMissing(write));
  for (CachedWrite::Part& part : write->parts) {
    TableCache& cache = tables_.at(part.table);
    for (size_t u = 0; u < part.uniques; ++u) {
      const size_t next = u + TableCache::kLinesAhead;
      if (next < part.uniques && part.touched[next]) cache.PrefetchState(part.rows[next]);
      if (part.touched[u]) cache.UpdateOf(part.rows[u]);
    }
  }
  Tick(write, step, pool);
  if (write->others != nullptr) MarkMoved(write->others->outdated);
  const uint64_t first_frame = pushes_.next_frame();
  try {
    {
      const TraceScope pushing(config_.trace, TraceKind::kPush);
      pushes_.OfStep(*write);
    }
    Progress(0);
    const auto wait = [&] {
      return write->others == nullptr
                 ? WaitForPushBound(*write)
                 : WaitForFrames(write->others->exact ? UINT64_MAX : first_frame, "a push");
    };
    Status status = wait();
    if (status.ok()) status = MakeRoomForKept();
    // That may have waited, and heard that a partition's incarnation changed to an earlier state.
    if (status.ok()) status = wait();
    pushes_.Trim();
    return status;
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted,
                  "out of memory while pushing; the updates of this step were made and are kept, and go out "
                  "with the next one");
  }
}

uint64_t Client::UnappliedTicks(uint64_t table, Key key) {
  TableCache& cache = tables_.at(table);
  uint64_t ticks = 0;
  const uint32_t line = cache.lines().Find(key);
  if (line != kNoRow) ticks += cache.pending(line);
  if (const TableCache::Queued* queued = cache.FindQueued(key)) ticks += queued->ticks;
  return ticks + exchange_.session(tables_.PartitionOf(cache, key))->log().UnappliedTicks(table, key);
}

Status Client::WaitForPushBound(const CachedWrite& write) {
  auto over_bound = [&](const CachedWrite::Part& part) {
    const TableCache& cache = tables_.at(part.table);
    const SyncPolicy sync = cache.config().sync();
    if (!sync.bounds_pushes() || !exchange_.session(part.partition)->log().unapplied()) return false;
    const auto waits = [&](size_t u) {
      const uint64_t unapplied = UnappliedTicks(part.table, part.keys[u]);
      if (!sync.MustWait(unapplied, /*clock=*/0)) return false;  // bounds grow with clocks
      // The row may have left since its tick, and another one be where it was.
      const uint32_t line = cache.lines().Find(part.keys[u]);
      if (!sync.MustWait(unapplied, line == kNoRow ? 0 : cache.clock(line))) return false;
      // A base that has fallen meanwhile leaves ticks unsent until the row is next ticked.
      return exchange_.session(part.partition)->log().UnappliedTicks(part.table, part.keys[u]) > 0;
    };
    for (size_t u = 0; u < part.uniques; ++u) {
      if (part.touched[u] && waits(u)) return true;
    }
    return false;
  };
  return waiter_.Until([&] { return std::none_of(write.parts.begin(), write.parts.end(), over_bound); },
                       "a push");
}

Status Client::WaitForFrames(uint64_t end, const char* what) {
  const auto& sessions = exchange_.sessions();
  const auto unapplied = [end](const Session& session) {
    return session.log().AnyUnapplied([end](const PushFrame& frame) { return frame.number < end; });
  };
  return waiter_.Until([&] { return std::none_of(sessions.begin(), sessions.end(), unapplied); }, what);
}

void Client::MarkMoved(Span<const OthersKeys> rows) {
  for (const OthersKeys& part : rows) {
    TableCache& cache = tables_.at(part.table);
    for (size_t i = 0; i < part.keys.size(); ++i) {
      const uint32_t line = cache.lines().Find(part.keys[i], part.hashes[i]);
      if (line != kNoRow) cache.MarkMoved(line);
    }
  }
}

Status Client::MakeRoomForKept() {
  if (durability_.MustWait()) {
    return waiter_.Until([this] { return !durability_.MustWait(); }, "replicas",
                         "Bring the replicas back, or raise het_tf.init(keep_bytes=...)");
  }
  durability_.ForgetOldest();
  return Status();
}

Status Client::PushPastBound() {
  pushes_.PastBound();
  return WaitForFrames(UINT64_MAX, "a push");
}

Status Client::Flush() {
  pushes_.Everything();
  const Status status = WaitForFrames(UINT64_MAX, "a flush");
  losses_.Tell(/*now=*/true);
  return status;
}

// --- progress

void Client::Progress(double wait) {
  if (std::exchange(interrupted_, true)) {
    early_.DropAll();
    exchange_.Recover();
  }
  durability_.AskReplicas();
  exchange_.Pump();
  exchange_.Receive(wait, durability_.expects_answers());
  exchange_.Pump();
  losses_.Tell(/*now=*/false);
  interrupted_ = false;
}

double Client::Due() const {
  return std::max(std::min({exchange_.Due(), durability_.Due(), losses_.Due()}), 1e-3);
}

}  // namespace het
