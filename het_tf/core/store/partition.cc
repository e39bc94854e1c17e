#include "het_tf/core/store/partition.h"

#include <algorithm>
#include <new>
#include <utility>

#include "het_tf/core/wire/frame_bytes.h"

namespace het {
namespace {

// Calls found(i, row) for each key, in order; kNoRow: absent.
template <typename Found>
void FindEach(const RowStore& store, const Vector<Key>& keys, Found found) {
  constexpr size_t kAtOnce = 256;
  uint64_t hashes[kAtOnce];
  uint32_t rows[kAtOnce];
  for (size_t begin = 0; begin < keys.size(); begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, keys.size() - begin);
    for (size_t i = 0; i < count; ++i) hashes[i] = store.Hash(keys[begin + i]);
    store.FindBatch(keys.data() + begin, hashes, count, rows);
    for (size_t i = 0; i < count; ++i) found(begin + i, rows[i]);
  }
}

// Whether two ascending lists have a key in common, *key.
bool AnyCommon(Span<const Key> first, Span<const Key> second, Key* key) {
  const Key* at = second.begin();
  for (const Key each : second.empty() ? Span<const Key>() : first) {
    while (at != second.end() && *at < each) ++at;
    if (at == second.end()) return false;
    *key = each;
    if (*at == each) return true;
  }
  return false;
}

// Completes lists that came with names. Null: nothing has one.
bool CompleteTable(const NamedKeys* ring, TableRequest* t) {
  static const NamedKeys kEmpty(1, 1);
  if (ring == nullptr) ring = &kEmpty;
  const auto complete = [&](const Vector<uint32_t>& names, Vector<Key>* keys) {
    return CompleteKeys(*ring, ring->appended(), names, keys);
  };
  return complete(t->names.push, &t->push_keys) && complete(t->names.check, &t->check_keys) &&
         complete(t->names.fetch, &t->fetch_keys) && complete(t->names.dropped, &t->dropped);
}

// Appends the keys that a request had in full to its client's rings.
void AppendNames(const Request& q, ClientNames* names) {
  for (const TableRequest& t : q.tables) {
    if (t.ring == 0) continue;
    NamedKeys* const ring = t.anew ? names->Begin(q.client, t.table, t.ring) : names->Find(q.client, t.table);
    if (ring != nullptr) AppendInFull(t, ring);
  }
}

// `part`: the number of the request's part.
bool CheckTable(const TableRequest& t, const Handling& how, uint64_t part, Shard* shard,
                std::string* message) {
  const TableSchema& schema = shard->schema();
  const auto refuse = [&](const std::string& why) {
    *message = why;
    return false;
  };
  const auto of = [&](const char* what) {
    return what + std::string(" of table '") + schema.spec().name + "'";
  };
  if (!shard->NameIn(part)) return refuse("a part names table '" + schema.spec().name + "' twice");
  const size_t wire_floats = schema.optimizer().wire_floats();
  if (!t.push_keys.empty() && t.update_floats != wire_floats) {
    return refuse(of("an update") + " has " + std::to_string(t.update_floats) + " floats, not " +
                  std::to_string(wire_floats));
  }
  const bool formats = t.push_format != RowFormat::kFloat32 || t.row_format != RowFormat::kFloat32;
  if (formats && t.block != schema.dim()) {
    return refuse(of("rows") + " have values of " + std::to_string(schema.dim()) + " floats, not " +
                  std::to_string(t.block));
  }
  if (how.now == 0) return true;  // its owner has checked
  uint32_t ticks = 0;
  for (uint32_t each : t.push_ticks) ticks |= each;
  if (ticks >= Shard::kMaxPushTicks) {
    return refuse(of("an update") + " has more than " + std::to_string(Shard::kMaxPushTicks - 1) +
                  " ticks; push more often");
  }
  const Span<const Key> pushed = t.push_keys;
  const size_t stay = pushed.size() - t.left;
  Key key = 0;
  if (AnyCommon(pushed.subspan(0, stay), pushed.subspan(stay, t.left), &key) ||
      AnyCommon(t.check_keys, t.fetch_keys, &key)) {
    return refuse(of(("key " + std::to_string(key)).c_str()) +
                  " comes twice; a part names each key once to push, and once to read");
  }
  return true;
}

}  // namespace

Partition::Partition(PartitionId id, uint64_t incarnation) : id_(id), incarnation_(incarnation) {}

Status Partition::CreateTable(const Schema& schema, uint64_t epoch, uint32_t now) {
  Shard* shard = Find(schema->id());
  const auto& limits = schema->spec().limits;
  auto set_limits = [&] {
    TableLimits set = *limits;
    if (set.since == 0) set.since = now;
    shard->set_limits(set);
  };
  if (shard != nullptr) {
    const std::string here = shard->schema().ToJson();
    const std::string wanted = schema->ToJson();
    if (here == wanted) {
      if (limits && !limits->Same(shard->limits())) set_limits();
      return Status();
    }
    return Status(Code::kAlreadyExists, "table '" + schema->spec().name +
                                            "' exists with another spec: " + DifferentFields(here, wanted) +
                                            ". Use another name, or drop the table first");
  }
  if (shards_.size() >= max_tables_) {
    return Status(Code::kResourceExhausted, "table '" + schema->spec().name +
                                                "' is one too many: a partition has at most " +
                                                std::to_string(max_tables_) +
                                                " tables; drop some, or raise het.max-tables at the server");
  }
  auto made = std::make_unique<Shard>(schema, epoch, id_.hash_seed);
  shard = made.get();
  shard->set_known_since(changes_.now());
  shards_[schema->id()] = std::move(made);
  if (limits) set_limits();
  return Status();
}

Shard* Partition::Find(uint64_t table) {
  const auto it = shards_.find(table);
  return it == shards_.end() ? nullptr : it->second.get();
}

void Partition::DropTable(uint64_t table) {
  if (shards_.erase(table) > 0) changes_.Unrecorded();
}

void Partition::ClearTable(uint64_t table, uint64_t epoch) {
  Shard* const shard = Find(table);
  if (shard == nullptr) return;
  shard->Clear(epoch);
  changes_.Unrecorded();
  shard->set_known_since(changes_.now());
}

void Partition::RemoveRow(Shard* shard, uint32_t row) {
  RowsChanged(shard->schema().id());
  changes_.Removed(shard->schema().id(), shard->rows().meta(row).key);
  shard->Remove(row);
}

size_t Partition::bytes() const {
  size_t sum = 0;
  for (const auto& [table, shard] : shards_) sum += shard->bytes();
  return sum + changes_.bytes();
}

FrameStatus Partition::Check(Request* request, const Handling& how, std::string* message, bool* same_inc) {
  const Request& q = *request;
  if (!(q.partition == id_)) {
    *message = "the frame is for partition " + std::to_string(q.partition.index) + " of " +
               std::to_string(q.partition.count) + "; this is " + std::to_string(id_.index) + " of " +
               std::to_string(id_.count);
    return FrameStatus::kWrongPartition;
  }
  ++parts_;
  EpochDigest digest(q.knows_inc ? incarnation_ : 0);
  named_.clear();
  bool names = false;
  for (const TableRequest& t : q.tables) {
    Shard* const shard = named_.emplace_back(Find(t.table));
    if (shard == nullptr) {
      *message = "no table with id " + std::to_string(t.table) + "; create it first";
      return FrameStatus::kNoTable;
    }
    digest.Add(t.table, shard->epoch());
    names = names || t.ring != 0;
    if (t.ring == 0 || t.anew) continue;
    const NamedKeys* const ring = names_.Find(q.client, t.table);
    digest.AddNames(ring == nullptr ? 0 : ring->state());
  }
  const bool asks = q.knows_inc || !q.tables.empty();
  const bool same = !asks || q.digest == digest.value(q.request_id);
  *same_inc = q.knows_inc && same;
  const uint64_t last = clients_.LastSeq(q.client);
  const bool gap = q.seq > last + 1 || std::max(last, q.seq) < q.after_seq;
  // Without equal rings nobody knows which keys it names.
  if (names && !same) return gap ? FrameStatus::kGap : FrameStatus::kEpoch;
  size_t bytes = 0;
  for (size_t i = 0; i < q.tables.size(); ++i) {
    TableRequest& t = request->tables[i];
    if (t.ring != 0 && !CompleteTable(t.anew ? nullptr : names_.Find(q.client, t.table), &t)) {
      *message = "a list names a key that its ring does not have, or does not ascend";
      return FrameStatus::kBadFrame;
    }
    if (!CheckTable(t, how, parts_, named_[i], message)) return FrameStatus::kBadFrame;
    bytes += (t.check_keys.size() + t.fetch_keys.size()) *
             MostAnswerBytes(t.row_format, t.block, named_[i]->schema().row_floats());
  }
  if (bytes > how.most_bytes) {
    *message = "an answer with all rows that the part asks for takes " + std::to_string(bytes) +
               " bytes, and here it may take " + std::to_string(how.most_bytes) +
               "; ask for fewer rows at once, or raise het.max-reply-bytes at the server";
    return FrameStatus::kBadFrame;
  }
  if (gap) return FrameStatus::kGap;
  return same ? FrameStatus::kOk : FrameStatus::kEpoch;
}

Subscribers::Turn Partition::BeginTurn(const Request& q) {
  Vector<Subscribers::Use> uses;
  uses.reserve(q.tables.size());
  for (size_t i = 0; i < q.tables.size(); ++i) {
    const TableRequest& t = q.tables[i];
    const size_t incoming = t.subscribe ? t.check_keys.size() + t.fetch_keys.size() : 0;
    uses.push_back({t.table, named_[i]->epoch(), t.bound, incoming});
  }
  return subscribers_.Begin(q.client, q.request_id, q.notified_ack, uses);
}

void Partition::Answer(const Request& q, Reply* p) {
  const bool subscribes = q.subscribes();
  Subscribers::Turn turn = subscribes ? BeginTurn(q) : Subscribers::Turn();
  size_t used = 0;
  for (size_t i = 0; i < q.tables.size(); ++i) {
    const TableRequest& t = q.tables[i];
    const Shard& shard = *named_[i];
    const RowStore& store = shard.rows();
    TableReply& answer = *frame::NextTable(&p->tables, &used);
    answer.table = t.table;
    answer.row_floats = static_cast<uint32_t>(shard.schema().row_floats());
    answer.row_format = t.row_format;
    answer.block = t.block;
    answer.stored_rows.reserve(t.fetch_keys.size());
    answer.fetched_clocks.reserve(t.fetch_keys.size());
    turn.At(t.table, t.dropped);
    auto hold = [&](Key key, Clock clock) {
      if (t.subscribe) turn.Subscribe(key, clock);
    };
    const auto bring = [&](uint32_t row) {
      const float* const stored = store.data(row);
      if (shard.schema().stored().exact()) return answer.stored_rows.push_back(stored);
      const float* const floats = shard.Read(stored);
      answer.rows.insert(answer.rows.end(), floats, floats + answer.row_floats);
    };
    FindEach(store, t.check_keys, [&](size_t k, uint32_t row) {
      const Clock clock = row == kNoRow ? 0 : store.meta(row).clock;
      // Unsigned, since a client may send any clock.
      const auto lag =
          static_cast<Clock>(static_cast<uint64_t>(clock) - static_cast<uint64_t>(t.check_clocks[k]));
      if (clock >= t.check_clocks[k] && lag >= 0 && lag <= t.bound.Of(clock)) {
        const size_t bucket = LagBucket(lag);
        Vector<uint64_t>& lags = answer.lag_histogram;
        if (lags.size() <= bucket) lags.resize(bucket + 1);
        ++lags[bucket];
        return hold(t.check_keys[k], t.check_clocks[k]);
      }
      answer.refreshed.push_back(static_cast<uint32_t>(k));
      answer.refreshed_lags.push_back(clock == 0 ? 0 : lag);
      hold(t.check_keys[k], clock);
      if (clock != 0) bring(row);
    });
    FindEach(store, t.fetch_keys, [&](size_t k, uint32_t row) {
      const Clock clock = row == kNoRow ? 0 : store.meta(row).clock;
      answer.fetched_clocks.push_back(clock);
      hold(t.fetch_keys[k], clock);
      if (clock != 0) bring(row);
    });
    turn.Notify(&answer.notified_keys);
    const NamedKeys* const ring = t.ring == 0 ? nullptr : names_.Find(q.client, t.table);
    if (ring != nullptr) NameKeys(*ring, answer.notified_keys, &answer.notified_names);
    if (!answer.speaks()) --used;
  }
  p->tables.resize(used);
  p->notified = turn.number();
  p->subscription_reset = subscribes && turn.reset();
}

Replication Partition::Replicate(Request* q, bool lone) {
  Replication replication;
  replication.time = q->time;
  const bool names =
      std::any_of(q->tables.begin(), q->tables.end(), [](const TableRequest& t) { return t.ring != 0; });
  replication.frame = lone && IsPushAlone(*q) && !q->knows_inc && !names;
  if (replication.frame) return replication;
  for (size_t i = 0; i < q->tables.size(); ++i) q->tables[i].epoch = named_[i]->epoch();
  EncodePush(*q, &replication.push);
  return replication;
}

bool Partition::AnswerTables(const Request& q, Reply* p) {
  bool pulled = false;
  if (p->status != FrameStatus::kOk) p->tables.clear();
  if (p->status == FrameStatus::kOk) {
    Answer(q, p);
    for (const TableRequest& t : q.tables) {
      pulled = pulled || t.subscribe || !t.check_keys.empty() || !t.fetch_keys.empty();
    }
  } else if (p->status == FrameStatus::kNoTable) {
    for (const TableRequest& t : q.tables) {
      if (Find(t.table) == nullptr) p->tables.emplace_back().table = t.table;
    }
  } else if (p->status == FrameStatus::kEpoch) {
    for (const Shard* shard : named_) {
      TableReply& answer = p->tables.emplace_back();
      answer.table = shard->schema().id();
      answer.epoch = shard->epoch();
    }
  }
  return pulled;
}

Handled Partition::HandlePart(Request* q, ReplyWriter* replies, const Handling& how) {
  Handled handled;
  Reply& reply = replies->Part();
  reply.inc = incarnation_;
  reply.request_id = q->request_id;
  reply.partition = q->partition.index;
  try {
    reply.status = Check(q, how, &reply.message, &reply.same_inc);
    if (reply.same_inc) reply.inc = 0;
    if (reply.status == FrameStatus::kOk && q->seq != 0 && q->seq == clients_.LastSeq(q->client) + 1) {
      if (how.now != 0 || how.applied_at != 0) q->time = how.now != 0 ? how.now : how.applied_at;
      // Failures come before changes.
      if (how.replicate) handled.replication = Replicate(q, how.lone);
      reply.status = Apply(*q, how.now != 0, &handled, &reply.message);
      handled.applied = reply.status == FrameStatus::kOk;
    }
    reply.last_seq = clients_.LastSeq(q->client);
    reply.same_seq = reply.last_seq == q->newest_seq();
    if (reply.same_seq) reply.last_seq = 0;
    if (reply.status == FrameStatus::kOk) AppendNames(*q, &names_);
    handled.pulled = AnswerTables(*q, &reply);
    replies->Add(reply);
    for (const TableReply& t : reply.tables) handled.rows += t.KnownRows();
  } catch (const std::bad_alloc&) {
    // The push may have been applied: last_seq shows it to the client.
    reply.status = FrameStatus::kOutOfMemory;
    reply.last_seq = clients_.LastSeq(q->client);
    reply.same_seq = false;
    reply.message.clear();
    reply.tables = Vector<TableReply>();
    reply.notified = 0;
    reply.subscription_reset = false;
    replies->Add(reply);
  }
  if (!handled.applied) {
    handled.replication = Replication();
  } else if (how.now != 0) {
    handled.swept = SweepPushed(*q, how.now, how.replicate ? &handled.replication.removals : nullptr);
  }
  handled.status = reply.status;
  return handled;
}

}  // namespace het
