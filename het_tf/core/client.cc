#include "het_tf/core/client.h"

#include <unistd.h>

#include <algorithm>

#include "het_tf/core/local_service.h"

namespace het {
namespace {

// Fewer keys are ticked before a second thread has woken up.
constexpr size_t kParallelKeys = 4096;

}  // namespace

Client::Client(Transport* transport, ClientConfig config)
    : transport_(transport), config_(config), process_(getpid()), jitter_(RandomId()) {
  StartOver();
}

Client::~Client() = default;

void Client::StartOver() {
  links_.clear();
  for (uint32_t p = 0; p < transport_->partitions(); ++p) {
    links_.emplace_back();
    links_.back().partition = p;
    links_.back().client = ClientId{RandomId(), RandomId()};
  }
  tokens_.clear();
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
    caches_[id] = std::make_unique<TableCache>(Schema(cache->shared_schema()), cache->config(),
                                               transport_->id(0).hash_seed);
  }
}

Status Client::AddTable(const Schema& schema, const CacheConfig& config) {
  HET_RETURN_IF_ERROR(CheckPolicyName(config.policy));
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
    for (PushFrame& frame : link.frames) {
      auto& sections = frame.sections;
      sections.erase(
          std::remove_if(sections.begin(), sections.end(),
                         [cache](const PushFrame::Section& section) { return section.cache == cache; }),
          sections.end());
    }
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
  try {
    Classify(op.get());
  } catch (...) {
    static_cast<void>(FinishRead(op.get()));
    throw;
  }
  return op;
}

void Client::Classify(ReadOp* op) {
  CachedRead* const read = op->read;
  const uint64_t token = op->token;
  ++op->open_parts;  // until all is known: a failure in here is not a finished read
  size_t uniques = 0;
  for (const CachedRead::Part& part : read->parts) uniques += part.uniques;
  op->pins.reserve(uniques);  // a row that comes with an answer is pinned too
  std::map<uint32_t, ReadPartPtr> by_partition;
  for (CachedRead::Part& part : read->parts) {
    TableCache* cache = caches_.at(part.table).get();
    cache->lines().FindBatch(part.keys, part.hashes, part.uniques, part.rows);
    const bool check = cache->config().pull_bound != kUnbounded;
    ReadPart::Section section{cache, {}, {}, {}};
    size_t hits = 0;
    for (size_t u = 0; u < part.uniques; ++u) {
      const uint32_t line = part.rows[u];
      if (line != kNoRow) {
        ++hits;
        cache->Pin(line);
        op->pins.push_back({cache, line});
        if (token != 0) cache->Touch(line);
        if (cache->invalid(line)) {
          section.fetches.push_back(part.keys[u]);
        } else if (check) {
          section.checks.push_back(part.keys[u]);
          section.clocks.push_back(cache->base(line));
        }
      } else {
        section.fetches.push_back(part.keys[u]);
      }
    }
    if (token != 0) {
      cache->counters().reads += part.uniques;
      cache->counters().hits += hits;
    }
    if (section.checks.empty() && section.fetches.empty()) continue;
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
  --op->open_parts;
}

Status Client::FinishRead(ReadOp* op) {
  for (ReadPartPtr& part : op->parts) part->op = nullptr;  // answers that still come are for nobody
  if (!op->error.ok() || op->open_parts > 0) {
    for (auto& [cache, line] : op->pins) cache->Unpin(line);
    op->pins.clear();
    return op->error.ok() ? Status(Code::kCancelled, "the read was abandoned") : op->error;
  }
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
    return Status();
  }
  Pins& pins = tokens_[op->token];
  pins.insert(pins.end(), op->pins.begin(), op->pins.end());
  while (tokens_.size() > kPinnedTokens) Unpin(tokens_.begin()->first);
  return Status();
}

void Client::Unpin(uint64_t token) {
  const auto it = tokens_.find(token);
  if (it == tokens_.end()) return;
  for (auto& [cache, line] : it->second) cache->Unpin(line);
  tokens_.erase(it);
}

Status Client::Read(CachedRead* read, uint64_t token) {
  std::unique_ptr<ReadOp> op = BeginRead(read, token);
  try {
    const Status waited = Wait([&op] { return op->done(); }, "a lookup");
    if (!waited.ok() && op->error.ok()) op->error = waited;
    return FinishRead(op.get());
  } catch (...) {
    ++op->open_parts;
    static_cast<void>(FinishRead(op.get()));
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
    Unpin(token);
    TrimCaches();
  } catch (const std::bad_alloc&) {
    status = Status(
        Code::kResourceExhausted,
        "out of memory while pushing; the updates of this step were made and are kept, and go out with "
        "the next one");
  }
  Unpin(token);
  return status;
}

PushFrame::Section* Client::NewSection(Link* link, PushFrame** frame, TableCache* cache, size_t rows) {
  if (*frame == nullptr) {
    link->frames.emplace_back();
    *frame = &link->frames.back();
    (*frame)->seq = link->next_seq++;
  }
  PushFrame::Section* section = (*frame)->Of(cache);
  if (section == nullptr) {
    (*frame)->sections.push_back({cache, {}, {}, {}, {}});
    section = &(*frame)->sections.back();
  }
  const size_t all = section->keys.size() + rows;
  section->keys.reserve(all);
  section->ticks.reserve(all);
  section->wire.reserve(all * cache->schema().optimizer().wire_floats());
  return section;
}

void Client::PushDue(const CachedWrite& write) {
  PushFrame* frame = nullptr;
  uint32_t frame_of = 0;
  for (const CachedWrite::Part& part : write.parts) {
    TableCache* cache = caches_.at(part.table).get();
    const int64_t bound = cache->config().push_bound;
    if (bound == kUnbounded) continue;
    auto due = [&](size_t u) { return part.touched[u] && cache->pending(part.rows[u]) > bound; };
    size_t rows = 0;
    for (size_t u = 0; u < part.uniques; ++u) rows += due(u);
    if (rows == 0) continue;
    // Parts are in order of partition: one frame each.
    if (frame != nullptr && frame_of != part.partition) frame = nullptr;
    frame_of = part.partition;
    PushFrame::Section* section = NewSection(&links_[part.partition], &frame, cache, rows);
    for (size_t u = 0; u < part.uniques; ++u) {
      if (!due(u)) continue;
      section->keys.push_back(part.keys[u]);
      cache->TakeUpdate(part.rows[u], &section->ticks, &section->wire);
    }
    cache->counters().bound_push += rows;
  }
}

void Client::PushQueues() {
  const auto partitions = static_cast<uint32_t>(links_.size());
  bool any = false;
  for (auto& [table, cache] : caches_) any = any || cache->queued() > 0;
  if (!any) return;
  Vector<size_t> rows(partitions);
  std::vector<PushFrame*> frames(partitions, nullptr);
  for (auto& [table, cache] : caches_) {
    if (cache->queued() == 0) continue;
    std::fill(rows.begin(), rows.end(), 0);
    for (const TableCache::Queued& queued : cache->queue()) {
      if (queued.ticks > 0) ++rows[LinkOf(*cache, queued.key)->partition];
    }
    for (uint32_t p = 0; p < partitions; ++p) {
      if (rows[p] == 0) continue;
      PushFrame::Section* section = NewSection(&links_[p], &frames[p], cache.get(), rows[p]);
      cache->TakeQueue(p, partitions, &section->keys, &section->ticks, &section->wire);
      cache->counters().evict_push += rows[p];
    }
  }
}

uint64_t Client::UnappliedTicks(uint64_t table, Key key) {
  TableCache* cache = caches_.at(table).get();
  uint64_t ticks = 0;
  const uint32_t line = cache->lines().Find(key);
  if (line != kNoRow) ticks += cache->pending(line);
  if (const TableCache::Queued* queued = cache->FindQueued(key)) ticks += queued->ticks;
  Link* link = LinkOf(*cache, key);
  for (auto frame = link->After(link->applied); frame != link->frames.end(); ++frame) {
    PushFrame::Section* section = frame->Of(cache);
    const int64_t at = section == nullptr ? -1 : section->Position(key);
    if (at >= 0) ticks += section->ticks[static_cast<size_t>(at)];
  }
  return ticks;
}

Status Client::WaitForPushBound(const CachedWrite& write) {
  auto over_bound = [&](const CachedWrite::Part& part) {
    const int64_t bound = caches_.at(part.table)->config().push_bound;
    if (bound == kUnbounded || !links_[part.partition].unapplied()) return false;
    for (size_t u = 0; u < part.uniques; ++u) {
      if (part.touched[u] && UnappliedTicks(part.table, part.keys[u]) > static_cast<uint64_t>(bound))
        return true;
    }
    return false;
  };
  return Wait([&] { return std::none_of(write.parts.begin(), write.parts.end(), over_bound); }, "a push");
}

void Client::TrimCaches() {
  bool full = false;
  for (auto& [table, cache] : caches_) {
    cache->MakeRoom(0);
    full = full || cache->queued() > cache->config().write_back_rows;
  }
  if (full) PushQueues();
}

Status Client::WaitApplied() {
  return Wait(
      [this] {
        return std::none_of(links_.begin(), links_.end(), [](const Link& l) { return l.unapplied(); });
      },
      "a flush");
}

Status Client::Flush() {
  CheckFork();
  for (auto& [table, held] : caches_) {
    TableCache* cache = held.get();
    const size_t row_bytes = sizeof(Key) + cache->schema().optimizer().wire_floats() * sizeof(float);
    const size_t fit = std::max<size_t>(1, config_.max_frame_bytes / row_bytes);
    std::vector<Vector<uint32_t>> dirty(links_.size());
    cache->ForEachLine([&](uint32_t line) {
      if (cache->pending(line) > 0)
        dirty[LinkOf(*cache, cache->lines().meta(line).key)->partition].push_back(line);
    });
    for (uint32_t p = 0; p < links_.size(); ++p) {
      for (size_t begin = 0; begin < dirty[p].size(); begin += fit) {
        const size_t rows = std::min(fit, dirty[p].size() - begin);
        PushFrame* frame = nullptr;
        PushFrame::Section* section = NewSection(&links_[p], &frame, cache, rows);
        for (size_t i = begin; i < begin + rows; ++i) {
          section->keys.push_back(cache->lines().meta(dirty[p][i]).key);
          cache->TakeUpdate(dirty[p][i], &section->ticks, &section->wire);
        }
        cache->counters().bound_push += rows;
      }
    }
  }
  PushQueues();
  return WaitApplied();
}

void Client::MarkDurable() {
  for (Link& link : links_) link.ForgetThrough(link.applied);
}

void Client::Invalidate(uint64_t table, Span<const Key> keys) {
  TableCache* cache = caches_.at(table).get();
  for (Key key : keys) {
    const uint32_t line = cache->lines().Find(key);
    if (line != kNoRow) cache->Drop(line);
    cache->DropQueued([key](Key queued) { return queued == key; });
  }
}

void Client::ForgetTable(uint64_t table) {
  for (Link& link : links_) {
    DropTablePart(&link, caches_.at(table).get());
    link.epochs.erase(table);
  }
}

// --- waiting

std::string Client::WhatIsMissing(bool* out_of_memory) const {
  std::string which;
  for (const Link& link : links_) {
    if (link.outstanding.empty() && link.waiting.empty() && !link.unapplied()) continue;
    which += " partition " + std::to_string(link.partition) +
             (link.last_failure.empty() ? ": no answer;" : ": " + link.last_failure + ";");
    *out_of_memory = *out_of_memory || link.last_failure == kStoreOutOfMemory;
    if (which.size() > 400) break;
  }
  return which;
}

Status Client::Wait(const std::function<bool()>& done, const char* what) {
  const double start = transport_->Now();
  const uint64_t out_of_memory = out_of_memory_;
  double notice = kNoticeSeconds;
  rejected_ = Status();
  waiting_since_ = start;
  while (!done()) {
    Progress(0.05);
    for (const Link& link : links_) HET_RETURN_IF_ERROR(link.fatal);
    HET_RETURN_IF_ERROR(rejected_);
    if (done()) break;
    const double waited = transport_->Now() - start;
    const bool hopeless = config_.fail_out_of_memory && out_of_memory_ != out_of_memory;
    const bool fails = waited >= config_.deadline || hopeless;
    const bool tells = waited >= notice && config_.notice;
    if (!fails && !tells) continue;
    bool exhausted = false;
    const std::string so_far = std::string(what) + " waited for " + std::to_string(static_cast<int>(waited)) +
                               " s;" + WhatIsMissing(&exhausted);
    if (!fails) {
      notice *= 2;
      config_.notice(so_far + " it is tried again until " +
                     std::to_string(static_cast<int>(config_.deadline)) + " s have passed");
      continue;
    }
    return Status(exhausted ? Code::kResourceExhausted : Code::kDeadlineExceeded,
                  so_far + " updates that were made are kept and will be sent. " +
                      (exhausted ? "Give the store more memory, or use fewer rows"
                                 : "Check the servers, or raise the deadline"));
  }
  return Status();
}

}  // namespace het
