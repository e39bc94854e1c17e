// Rows of batches whose lookups will come.
//
//   ReadAhead(batch)   in the cache ─► held                       FollowAhead: the answers come
//                      absent       ─► fetched  ───────────────►  a transient line, held
//   Read(batch)        the line is read and checked like any other that is cached; the policy and the
//                      admission filter hear of it now, as if it had just been fetched;
//                      on its way: waited for, then checked       (I2 counts from the lookup, not from here)
//   ... has succeeded  nothing is held any more
//
// So what a lookup reads is what it would have read: rows were fetched earlier, and that is all. Without
// evictions not even the moment of a push changes.
//
// With check_ahead (CachedRead) the rows that are in the cache are asked about here, like those of a lookup,
// and I2 counts from here: the lookup waits until all of it is answered, and asks about nothing but rows that
// have become invalid since. It checks all the same where a row of the batch was left out here, an answer
// did not come, or more than check_ahead training reads of its kind came in between. That is what bounds I3:
// each of the others has made at most so many steps more, where workers go in step.
//
// A batch is known by its keys and its kind. One that is never looked up (an iterator that was left, ids that
// were changed on their way to the layer) is let go after kPatience other training reads of its kind.
#include <algorithm>
#include <utility>

#include "het_tf/core/client/client.h"

namespace het {
namespace {

// Any: reads with a token keep what they bring in the cache, and no lookup has this one.
constexpr uint64_t kAheadToken = ~uint64_t{0};
constexpr size_t kPatience = 64;
// Batches that may be held at once, of all layers: many layers, several batches each.
constexpr size_t kMaxAhead = 512;

// The same for the same keys, and never 0. Hashes are well mixed, and which table they are of is said by the
// kind.
uint64_t Fingerprint(const CachedRead& read) {
  uint64_t sum = 0;
  for (const CachedRead::Part& part : read.parts) {
    const uint64_t of_table = Mix64(part.table);
    for (size_t u = 0; u < part.uniques; ++u) sum += Mix64(part.hashes[u] ^ of_table);
  }
  return sum | 1;
}

uint64_t BatchOf(CachedRead* read) {
  if (read->batch == 0) read->batch = Fingerprint(*read);
  return read->batch;
}

}  // namespace

size_t Client::RoomAhead(const TableCache& cache) const {
  size_t held = 0;
  for (const auto& ahead : ahead_) {
    const auto rows = ahead->rows.find(&cache);
    if (rows != ahead->rows.end()) held += rows->second;
  }
  return cache.config().capacity - std::min(cache.config().capacity, held);
}

void Client::ReadAhead(const CachedRead& wanted) {
  CheckFork();
  if (ahead_.size() >= kMaxAhead) ReleaseAhead(0);
  ahead_.push_back(std::make_unique<AheadRead>());
  AheadRead& ahead = *ahead_.back();
  ReadOp* const op = &ahead.op;
  ahead.kind = wanted.kind;
  ahead.batch = Fingerprint(wanted);
  ahead.check_ahead = wanted.check_ahead;
  op->token = kAheadToken;
  op->ahead = true;
  op->checked = wanted.check_ahead > 0;
  try {
    size_t uniques = 0;
    for (const CachedRead::Part& part : wanted.parts) uniques += part.uniques;
    op->pins.reserve(uniques);
    std::map<uint32_t, ReadPartPtr> by_partition;
    for (const CachedRead::Part& part : wanted.parts) {
      TableCache* cache = caches_.at(part.table).get();
      if (cache->device() != nullptr) continue;
      const size_t end = std::min(part.uniques, RoomAhead(*cache));
      if (end < part.uniques) ahead.check_ahead = 0;
      const bool check = wanted.check_ahead > 0 && cache->config().pull_bound > 0;
      ahead.rows[cache] += end;
      cache->lines().FindBatch(part.keys, part.hashes, end, part.rows);
      ReadPartPtr& fetch = by_partition[part.partition];
      if (fetch == nullptr) {
        fetch = std::make_shared<ReadPart>();
        op->parts.push_back(fetch);  // so that whatever is on its way is forgotten with the op
      }
      fetch->sections.push_back({cache, {}, {}, {}});
      ReadPart::Section& section = fetch->sections.back();
      section.fetches.reserve(end);  // for its checks too: to ask again (Requeue) takes no memory
      for (size_t u = 0; u < end; ++u) {
        const uint32_t line = part.rows[u];
        if (line != kNoRow) {
          cache->Pin(line);
          op->pins.push_back({cache, line});
          cache->MarkAhead(line, /*fetched=*/false);
          if (check) AskAbout(cache, line, &section);
        } else if (!WaitsForAhead(op, cache, part.partition, part.keys[u])) {
          section.fetches.push_back(part.keys[u]);
          on_way_[cache][part.keys[u]] = fetch;
        }
      }
      if (section.empty()) fetch->sections.pop_back();
    }
    for (auto& [partition, fetch] : by_partition) {
      if (fetch->sections.empty()) continue;
      links_[partition].waiting.push_back(fetch);
      fetch->op = op;
      ++op->open_parts;
    }
  } catch (...) {
    ReleaseAhead(ahead_.size() - 1);
    throw;
  }
  try {
    Progress(0);
  } catch (const std::bad_alloc&) {  // it goes on with the next call
  }
}

bool Client::AheadOnWay() const {
  return std::any_of(ahead_.begin(), ahead_.end(),
                     [](const auto& ahead) { return !ahead->op.parts.empty(); });
}

// The batch of this read, if its rows were asked about when it was read ahead, or are being so.
const AheadRead* Client::CheckedAhead(CachedRead* read) const {
  if (read->kind == 0) return nullptr;
  for (const auto& ahead : ahead_) {
    if (ahead->kind != read->kind || ahead->batch != BatchOf(read)) continue;
    const bool counts = ahead->check_ahead > 0 && ahead->passed <= ahead->check_ahead;
    return counts ? ahead.get() : nullptr;
  }
  return nullptr;
}

// Until nothing of it is on its way any more, or it is given up.
Status Client::AwaitAhead(CachedRead* read) {
  auto arrived = [&] {
    const AheadRead* checked = CheckedAhead(read);
    return checked == nullptr || checked->op.done();
  };
  return arrived() ? Status() : Wait(arrived, "a lookup");
}

// Of a key that is not in the cache: whether it is on its way. Then op will ask for it once it is here, and
// is not done before.
bool Client::WaitsForAhead(ReadOp* op, TableCache* cache, uint32_t partition, Key key) {
  const auto table = on_way_.find(cache);
  if (table == on_way_.end()) return false;
  const auto found = table->second.find(key);
  if (found == table->second.end()) return false;
  const ReadPartPtr& of = found->second;
  // Keys come partition by partition: mostly it is the last one.
  auto late = std::find_if(op->late.rbegin(), op->late.rend(),
                           [&](const ReadOp::Late& each) { return each.of == of; });
  if (late == op->late.rend()) {
    if (op->late.empty()) late_reads_.push_back(op);
    op->late.push_back({of, partition, std::make_shared<ReadPart>()});
    ++op->open_parts;
    late = op->late.rbegin();
  }
  Vector<ReadPart::Section>& sections = late->ask->sections;
  if (sections.empty() || sections.back().cache != cache) sections.push_back({cache, {}, {}, {}});
  sections.back().fetches.push_back(key);
  if (!op->ahead) ++cache->counters().prefetch_late;
  return true;
}

// Lines that a lookup reads. In a training one those that were ahead are admitted or not, like rows that have
// just come.
void Client::UseAhead(TableCache* cache, uint64_t token, Span<const uint32_t> lines) {
  if (cache->ahead_lines() == 0) return;
  Vector<uint32_t> admitted;
  for (uint32_t line : lines) {
    if (line == kNoRow || !cache->ahead(line)) continue;
    cache->MarkUsed(line);
    if (token == 0 || !cache->Admit(cache->lines().Hash(cache->lines().meta(line).key))) continue;
    admitted.push_back(line);
  }
  if (admitted.empty()) return;
  cache->MakeRoom(admitted.size());
  for (uint32_t line : admitted) {
    if (cache->resident() < cache->config().capacity) cache->Settle(line);
  }
  if (cache->queued() > cache->config().write_back_rows) PushQueues();
}

// After answers have come: forgets what is no longer on its way, and asks for those who waited for it.
void Client::FollowAhead() {
  for (const auto& ahead : ahead_) {
    std::vector<ReadPartPtr>& parts = ahead->op.parts;
    const auto answered = std::partition(parts.begin(), parts.end(),
                                         [](const ReadPartPtr& part) { return part->op != nullptr; });
    for (auto part = answered; part != parts.end(); ++part) Arrived(**part);
    parts.erase(answered, parts.end());
  }
  // AskLate may make one read ahead wait for another, but none more that is late.
  for (size_t i = 0; i < late_reads_.size();) {
    ReadOp* const op = late_reads_[i];
    for (size_t l = 0; l < op->late.size();) {
      if (op->late[l].of->op != nullptr) {
        ++l;
        continue;
      }
      ReadOp::Late late = std::move(op->late[l]);
      op->late.erase(op->late.begin() + static_cast<ptrdiff_t>(l));
      AskLate(op, std::move(late));
    }
    if (op->late.empty()) {
      late_reads_.erase(late_reads_.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

// The rows that op waited for are here, or will not come: they are checked or fetched like any others.
void Client::AskLate(ReadOp* op, ReadOp::Late late) {
  try {
    size_t keys = 0;
    for (const ReadPart::Section& section : late.ask->sections) keys += section.fetches.size();
    op->pins.reserve(op->pins.size() + keys);
    ReadPartPtr part = std::make_shared<ReadPart>();
    Vector<uint32_t> lines;
    for (const ReadPart::Section& waited : late.ask->sections) {
      TableCache* const cache = waited.cache;
      const bool check = !op->ahead || (op->checked && cache->config().pull_bound > 0);
      ReadPart::Section section{cache, {}, {}, {}};
      section.fetches.reserve(waited.fetches.size());  // as in ReadAhead
      lines.clear();
      for (Key key : waited.fetches) {
        const uint32_t line = cache->lines().Find(key);
        if (line == kNoRow) {
          section.fetches.push_back(key);
          continue;
        }
        cache->Pin(line);
        op->pins.push_back({cache, line});
        if (op->ahead) {
          cache->MarkAhead(line, /*fetched=*/false);
        } else {
          lines.push_back(line);
          if (op->token != 0) cache->Touch(line);
        }
        if (check) AskAbout(cache, line, &section);
      }
      UseAhead(cache, op->token, Span<const uint32_t>(lines.data(), lines.size()));
      if (section.empty()) continue;
      part->sections.push_back(std::move(section));
    }
    if (!part->sections.empty()) {
      op->parts.push_back(part);
      if (op->ahead) {
        for (const ReadPart::Section& section : part->sections) {
          for (Key key : section.fetches) on_way_[section.cache][key] = part;
        }
      }
      links_[late.partition].waiting.push_back(part);
      part->op = op;
    } else {
      --op->open_parts;
    }
  } catch (const std::bad_alloc&) {
    op->error = Status(Code::kResourceExhausted, "out of memory during a lookup; no row was changed");
  }
}

void Client::Arrived(const ReadPart& part) {
  for (const ReadPart::Section& section : part.sections) {
    const auto table = on_way_.find(section.cache);
    if (table == on_way_.end()) continue;
    for (Key key : section.fetches) {
      const auto found = table->second.find(key);
      if (found != table->second.end() && found->second.get() == &part) table->second.erase(found);
    }
    if (table->second.empty()) on_way_.erase(table);
  }
}

// A lookup has succeeded: its batch is ahead no longer.
void Client::ReadOfAhead(const ReadOp& op) {
  if (ahead_.empty() || op.read->kind == 0) return;
  const uint64_t batch = BatchOf(op.read);
  bool found = false;
  for (size_t i = 0; i < ahead_.size();) {
    AheadRead& ahead = *ahead_[i];
    bool release = false;
    if (ahead.kind == op.read->kind) {
      if (!found && ahead.batch == batch) {
        found = release = true;
      } else if (op.token != 0) {
        release = ++ahead.passed > kPatience;
      }
    }
    if (release) {
      ReleaseAhead(i);
    } else {
      ++i;
    }
  }
}

void Client::ReleaseAhead(size_t which) {
  AheadRead& ahead = *ahead_[which];
  for (auto& [cache, line] : ahead.op.pins) cache->Unpin(line);
  for (const ReadPartPtr& part : ahead.op.parts) {
    Arrived(*part);
    part->op = nullptr;  // the answer is for nobody; who waits for it asks again
  }
  late_reads_.erase(std::remove(late_reads_.begin(), late_reads_.end(), &ahead.op), late_reads_.end());
  ahead_.erase(ahead_.begin() + static_cast<ptrdiff_t>(which));
}

void Client::DropAhead() {
  while (!ahead_.empty()) ReleaseAhead(ahead_.size() - 1);
  on_way_.clear();
}

}  // namespace het
