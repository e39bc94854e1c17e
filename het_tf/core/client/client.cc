#include "het_tf/core/client/client.h"

#include <unistd.h>

#include <algorithm>

#include "het_tf/core/store/local_service.h"

namespace het {
namespace {

// Fewer keys are ticked before a second thread has woken up.
constexpr size_t kParallelKeys = 4096;
// Lines ahead of the one in work whose memory is asked for.
constexpr size_t kLinesAhead = 12;

Status LinesAreElsewhere(const TableCache& cache) {
  return FailedPrecondition("table '" + cache.schema().spec().name +
                            "' is cached on a device; use ReadForDevice and PushForDevice");
}

}  // namespace

Client::Client(Transport* transport, ClientConfig config)
    : transport_(transport), config_(config), process_(getpid()), jitter_(RandomId()) {
  StartOver();
}

Client::~Client() = default;

void Client::StartOver() {
  links_.clear();
  base_id_ = {RandomId(), RandomId() << 32};
  generation_ = 0;
  const ClientId id = NewId();
  for (uint32_t p = 0; p < transport_->partitions(); ++p) {
    links_.emplace_back();
    links_.back().partition = p;
    links_.back().client = id;
  }
  tokens_.clear();
  ahead_.clear();
  on_way_.clear();
  late_reads_.clear();
  device_reads_.clear();
  loss_ = Loss();
}

void Client::CheckFork() {
  if (process_ == getpid()) return;
  // The parent goes on under the old identity and owns the unsent updates; here is a new client with empty
  // caches.
  process_ = getpid();
  std::map<uint64_t, std::unique_ptr<TableCache>> old;
  old.swap(caches_);
  StartOver();
  for (auto& [id, cache] : old) {
    if (DeviceLines* lines = LinesOf(*cache)) lines->Forsake();
    caches_[id] = std::make_unique<TableCache>(Schema(cache->shared_schema()), cache->config(),
                                               transport_->id(0).hash_seed, cache->device());
  }
  forsaken_ = forsaken_ || std::any_of(caches_.begin(), caches_.end(),
                                       [](const auto& table) { return table.second->device() != nullptr; });
}

Status CheckChecksName(const std::string& checks) {
  if (checks == "asked" || checks == "told") return Status();
  return InvalidArgument("checks is '" + checks + "'; it must be \"asked\" or \"told\"");
}

Status Client::AddTable(const Schema& schema, const CacheConfig& config) {
  HET_RETURN_IF_ERROR(CheckPolicyName(config.policy));
  HET_RETURN_IF_ERROR(CheckChecksName(config.checks));
  caches_[schema->id()] = std::make_unique<TableCache>(schema, config, transport_->id(0).hash_seed);
  return Status();
}

void Client::RemoveTable(uint64_t table) {
  if (caches_.count(table) == 0) return;
  ForgetTable(table);
  TableCache* cache = caches_.at(table).get();
  auto of_table = [cache](const auto& pin) { return pin.first == cache; };
  for (auto& [token, pins] : tokens_)
    pins.erase(std::remove_if(pins.begin(), pins.end(), of_table), pins.end());
  for (Link& link : links_) {
    link.log.RemoveTable(table);
    link.let_go.erase(table);
  }
  caches_.erase(table);
}

Link* Client::LinkOf(const TableCache& cache, Key key) {
  return &links_[PartitionOf(cache.lines().Hash(key), static_cast<uint32_t>(links_.size()))];
}

// --- read

std::unique_ptr<ReadOp> Client::BeginRead(CachedRead* read, uint64_t token) {
  CheckFork();
  auto op = std::make_unique<ReadOp>();
  op->read = read;
  op->token = token;
  const AheadRead* checked = CheckedAhead(read);
  op->checked = checked != nullptr && checked->op.open_parts == 0 && checked->op.error.ok();
  try {
    Classify(op.get());
  } catch (...) {
    static_cast<void>(FinishRead(op.get()));
    throw;
  }
  return op;
}

// What a read has to ask about a row that is cached.
void Client::AskAbout(TableCache* cache, uint32_t line, ReadPart::Section* section) {
  const Key key = cache->lines().meta(line).key;
  if (cache->invalid(line)) {
    section->fetches.push_back(key);
  } else if (cache->config().told() && cache->held(line)) {
    section->trusted.push_back(line);
  } else if (cache->config().pull_bound != kUnbounded) {
    section->checks.push_back(key);
    section->clocks.push_back(cache->base(line));
  }
}

void Client::Classify(ReadOp* op) {
  CachedRead* const read = op->read;
  const uint64_t token = op->token;
  for (const CachedRead::Part& part : read->parts) {
    const TableCache& cache = *caches_.at(part.table);
    if (cache.device() != nullptr) op->error = LinesAreElsewhere(cache);
  }
  if (!op->error.ok()) return;
  ++op->open_parts;  // until all is known: a failure in here is not a finished read
  size_t uniques = 0;
  for (const CachedRead::Part& part : read->parts) uniques += part.uniques;
  op->pins.reserve(uniques);  // a row that comes with an answer is pinned too
  std::map<uint32_t, ReadPartPtr> by_partition;
  for (CachedRead::Part& part : read->parts) {
    TableCache* cache = caches_.at(part.table).get();
    cache->lines().FindBatch(part.keys, part.hashes, part.uniques, part.rows);
    const bool checked = op->checked && cache->config().pull_bound > 0;
    ReadPart::Section section{cache, {}, {}, {}};
    size_t hits = 0;
    for (size_t u = 0; u < part.uniques; ++u) {
      const uint32_t line = part.rows[u];
      const size_t next = u + kLinesAhead;
      if (next < part.uniques && part.rows[next] != kNoRow) {
        cache->PrefetchState(part.rows[next]);
        if (token != 0) cache->PrefetchTouch(part.rows[next]);
      }
      if (line != kNoRow) {
        ++hits;
        cache->Pin(line);
        op->pins.push_back({cache, line});
        if (token != 0) cache->Touch(line);
        if (!checked || cache->invalid(line)) AskAbout(cache, line, &section);
      } else if (!WaitsForAhead(op, cache, part.partition, part.keys[u])) {
        section.fetches.push_back(part.keys[u]);
      }
    }
    if (token != 0) {
      cache->counters().reads += part.uniques;
      cache->counters().hits += hits;
    }
    if (section.empty()) continue;
    ReadPartPtr& wanted = by_partition[part.partition];
    if (wanted == nullptr) wanted = std::make_shared<ReadPart>();
    wanted->op = op;
    wanted->sections.push_back(std::move(section));
  }
  for (auto& [partition, part] : by_partition) {
    op->parts.push_back(part);
    links_[partition].waiting.push_back(part);
    ++op->open_parts;
  }
  for (const CachedRead::Part& part : read->parts) {
    UseAhead(caches_.at(part.table).get(), token, Span<const uint32_t>(part.rows, part.uniques));
  }
  --op->open_parts;
}

Status Client::FinishRead(ReadOp* op) {
  for (ReadPartPtr& part : op->parts) part->op = nullptr;  // answers that still come are for nobody
  device_reads_.erase(std::remove(device_reads_.begin(), device_reads_.end(), op), device_reads_.end());
  late_reads_.erase(std::remove(late_reads_.begin(), late_reads_.end(), op), late_reads_.end());
  if (!op->error.ok() || op->open_parts > 0) {
    for (auto& [cache, line] : op->pins) cache->Unpin(line);
    op->pins.clear();
    return op->error.ok() ? Status(Code::kCancelled, "the read was abandoned") : op->error;
  }
  if (op->device != nullptr) return Status();
  for (CachedRead::Part& part : op->read->parts) {
    TableCache* cache = caches_.at(part.table).get();
    const RowStore& lines = cache->lines();
    for (size_t u = 0; u < part.uniques; ++u) {
      uint32_t line = part.rows[u];
      if (line == kNoRow) line = part.rows[u] = lines.Find(part.keys[u], part.hashes[u]);
      if (line != kNoRow) {
        part.values[u] = lines.data(line);
        continue;
      }
      auto found = op->fetched.find({cache, part.keys[u]});
      op->read->private_rows.push_back(std::move(found->second));
      part.values[u] = op->read->private_rows.back().data();
    }
  }
  if (op->token == 0) {
    for (auto& [cache, line] : op->pins) cache->Unpin(line);
    ReadOfAhead(*op);
    return Status();
  }
  Pins& pins = tokens_[op->token];
  if (pins.empty()) pins.swap(op->pins);
  pins.insert(pins.end(), op->pins.begin(), op->pins.end());
  while (tokens_.size() > kPinnedTokens) Unpin(tokens_.begin()->first);
  ReadOfAhead(*op);
  return Status();
}

void Client::Unpin(uint64_t token) {
  const auto it = tokens_.find(token);
  if (it == tokens_.end()) return;
  for (auto& [cache, line] : it->second) cache->Unpin(line);
  tokens_.erase(it);
}

Status Client::Read(CachedRead* read, uint64_t token) {
  CheckFork();
  if (AheadOnWay()) Progress(0);  // what has come need not be waited for
  HET_RETURN_IF_ERROR(AwaitAhead(read));
  return AwaitRead(BeginRead(read, token).get());
}

Status Client::AwaitRead(ReadOp* op) {
  try {
    const Status waited = Wait([op] { return op->done(); }, "a lookup");
    if (!waited.ok() && op->error.ok()) op->error = waited;
    return FinishRead(op);
  } catch (...) {
    ++op->open_parts;
    static_cast<void>(FinishRead(op));
    throw;
  }
}

// --- write

Status Client::FetchMissing(CachedWrite* write, uint64_t token) {
  struct Wanted {
    CachedWrite::Part* part;
    Vector<Key> keys;
    Vector<uint64_t> hashes;
    Vector<size_t> at;
    Vector<uint32_t> rows;
    Vector<const float*> values;
  };
  std::deque<Wanted> all;
  for (CachedWrite::Part& part : write->parts) {
    TableCache* cache = caches_.at(part.table).get();
    const RowStore& lines = cache->lines();
    Wanted wanted{&part, {}, {}, {}, {}, {}};
    for (size_t u = 0; u < part.uniques; ++u) {
      if (!part.touched[u]) continue;
      uint32_t& line = part.rows[u];
      if (line >= lines.end() || lines.meta(line).key != part.keys[u] || !lines.live(line)) {
        line = lines.Find(part.keys[u], part.hashes[u]);
      }
      if (line != kNoRow && !cache->invalid(line)) continue;
      wanted.keys.push_back(part.keys[u]);
      wanted.hashes.push_back(part.hashes[u]);
      wanted.at.push_back(u);
    }
    if (!wanted.keys.empty()) all.push_back(std::move(wanted));
  }
  if (all.empty()) return Status();
  // Rows that are here must still be here when the others have come.
  Pins held;
  for (const CachedWrite::Part& part : write->parts) {
    TableCache* cache = caches_.at(part.table).get();
    for (size_t u = 0; u < part.uniques; ++u) {
      if (!part.touched[u] || part.rows[u] == kNoRow) continue;
      held.push_back({cache, part.rows[u]});
      cache->Pin(part.rows[u]);
    }
  }
  CachedRead read;
  for (Wanted& wanted : all) {
    wanted.rows.resize(wanted.keys.size());
    wanted.values.resize(wanted.keys.size());
    read.parts.push_back({wanted.part->table, wanted.part->partition, wanted.keys.size(), wanted.keys.data(),
                          wanted.hashes.data(), wanted.rows.data(), wanted.values.data()});
  }
  const Status status = Read(&read, token);
  for (auto& [cache, line] : held) cache->Unpin(line);
  HET_RETURN_IF_ERROR(status);
  for (const Wanted& wanted : all) {
    for (size_t i = 0; i < wanted.at.size(); ++i) wanted.part->rows[wanted.at[i]] = wanted.rows[i];
  }
  return Status();
}

Status Client::Write(CachedWrite* write, uint64_t token, ThreadPool* pool) {
  CheckFork();
  for (const Link& link : links_) HET_RETURN_IF_ERROR(link.fatal);
  HET_RETURN_IF_ERROR(FetchMissing(write, token));
  for (CachedWrite::Part& part : write->parts) {
    TableCache* cache = caches_.at(part.table).get();
    for (size_t u = 0; u < part.uniques; ++u) {
      const size_t next = u + kLinesAhead;
      if (next < part.uniques && part.touched[next]) cache->PrefetchState(part.rows[next]);
      if (part.touched[u]) cache->UpdateOf(part.rows[u]);
    }
  }
  // From here on nothing fails but the network. Rows of different parts are different rows.
  size_t keys = 0;
  for (const CachedWrite::Part& part : write->parts) keys += part.uniques;
  auto tick = [&](size_t i) {
    CachedWrite::Part& part = write->parts[i];
    TableCache* cache = caches_.at(part.table).get();
    const TableSchema& schema = cache->schema();
    for (size_t u = 0; u < part.uniques; ++u) {
      const size_t next = u + kLinesAhead;
      if (next < part.uniques && part.touched[next]) cache->PrefetchTick(part.rows[next]);
      if (!part.touched[u]) continue;
      const uint32_t line = part.rows[u];
      schema.Tick(part.learning_rate, part.sums + u * schema.dim(), cache->lines().data(line),
                  cache->UpdateOf(line));
      cache->AddTick(line);
    }
  };
  if (keys >= kParallelKeys) {
    pool->For(write->parts.size(), tick);
  } else {
    for (size_t i = 0; i < write->parts.size(); ++i) tick(i);
  }
  for (const CachedWrite::Part& part : write->parts) {
    caches_.at(part.table)->counters().ticks += static_cast<uint64_t>(
        std::count_if(part.touched, part.touched + part.uniques, [](uint8_t t) { return t; }));
  }
  Status status;
  try {
    PushDue(*write);
    PushQueues();
    Progress(0);
    status = WaitForPushBound(*write);
    if (status.ok()) status = MakeRoomForKept();
    // That may have waited, and heard that a partition came to life again as it was earlier.
    if (status.ok()) status = WaitForPushBound(*write);
    Unpin(token);
    TrimCaches();
  } catch (const std::bad_alloc&) {
    status = NoMemoryToPush();
  }
  Unpin(token);
  return status;
}

Status Client::NoMemoryToPush() {
  return Status(Code::kResourceExhausted,
                "out of memory while pushing; the updates of this step were made and are kept, and go out "
                "with the next one");
}

void Client::Invalidate(uint64_t table, Span<const Key> keys) {
  DropAhead();
  TableCache* cache = caches_.at(table).get();
  if (DeviceLines* lines = LinesOf(*cache)) lines->DropKeys(keys);
  for (Key key : keys) {
    const uint32_t line = cache->lines().Find(key);
    if (line != kNoRow) cache->Drop(line);
    cache->DropQueued([key](Key queued) { return queued == key; });
  }
}

void Client::ForgetTable(uint64_t table) {
  DropAhead();
  for (Link& link : links_) {
    DropTablePart(&link, caches_.at(table).get());
    link.epochs.erase(table);
    AskAnew(&link, /*answered_alone=*/false);
  }
}

void Client::ForgetClean() {
  DropAhead();
  for (auto& [table, cache] : caches_) {
    if (DeviceLines* lines = LinesOf(*cache)) lines->DropClean();
    TableCache* const lines = cache.get();
    lines->ForEachLine([lines](uint32_t line) {
      if (!lines->HasUnsent(line)) lines->Drop(line);
    });
  }
}

void Client::Reload() {
  CheckFork();
  if (config_.on_reload == ClientConfig::kKeep) return;
  uint64_t discarded = 0;
  for (auto& [table, cache] : caches_) {
    discarded -= cache->counters().discarded_ticks;
    ForgetTable(table);
    discarded += cache->counters().discarded_ticks;
  }
  for (Link& link : links_) {
    link.log.Clear();
    link.Renumber(NewId());
  }
  if (discarded == 0 || !config_.notice) return;
  config_.notice("tables are being loaded: " + std::to_string(discarded) +
                 " updates that had not been sent were discarded. Flush before a restore to keep them");
}

}  // namespace het
