#include "het_tf/ext/ps/client/redis_store.h"

#include <algorithm>
#include <cstdlib>

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/local_service.h"
#include "het_tf/core/wire/parts.h"
#include "het_tf/ext/ps/client/remote_engine.h"
#include "het_tf/ext/ps/keyspace.h"

namespace het {
namespace {

// Clusters kept for later calls: this many concurrent calls need not connect.
constexpr size_t kMostIdle = 8;

// Retries of a fetch while others load or clear the table.
constexpr int kMostEpochs = 8;

uint64_t Number(const RedisReply& reply) {
  if (reply.kind == RedisReply::kInteger) return static_cast<uint64_t>(reply.integer);
  return std::strtoull(reply.text().c_str(), nullptr, 10);
}

// The rows that fit into a chunk or frame of so many bytes.
size_t RowsOf(const TableSchema& schema, size_t bytes) {
  return std::max<size_t>(1, bytes / (schema.row_floats() * sizeof(float) + 22));
}

}  // namespace

Result<std::optional<FoundPartitions>> FindPartitions(RedisCluster* cluster, const std::string& name_space,
                                                      double seconds) {
  const std::string key = MetaKey(name_space);
  RedisReply of[3];
  const char* const fields[] = {"partitions", "hash_seed", "made"};
  for (size_t i = 0; i < 3; ++i) {
    HET_ASSIGN_OR_RETURN(of[i], cluster->Ask(key, {"HGET", key, fields[i]}, seconds));
  }
  if (of[0].kind == RedisReply::kNil || of[1].kind == RedisReply::kNil) {
    return std::optional<FoundPartitions>();
  }
  const uint64_t count = Number(of[0]);
  if (count < 1 || count > kSlots) {
    return FailedPrecondition("the key '" + key + "' at " + cluster->address().ToString() + " says " +
                              std::to_string(count) + " partitions; it is not a namespace of het_tf");
  }
  return std::optional(FoundPartitions{PartitionKeys(name_space, static_cast<uint32_t>(count)), Number(of[1]),
                                       of[2].kind == RedisReply::kNil ? "" : of[2].text()});
}

RedisStore::Borrowed::Borrowed(RedisStore* store) : store_(store) {
  std::lock_guard<std::mutex> lock(store_->mutex_);
  if (store_->idle_.empty()) {
    cluster_ = std::make_unique<RedisCluster>(store_->address_, store_->notice_);
    return;
  }
  cluster_ = std::move(store_->idle_.back());
  store_->idle_.pop_back();
}

RedisStore::Borrowed::~Borrowed() {
  std::lock_guard<std::mutex> lock(store_->mutex_);
  if (store_->idle_.size() < kMostIdle) store_->idle_.push_back(std::move(cluster_));
}

Result<std::unique_ptr<RedisStore>> RedisStore::Open(const ServerAddress& address,
                                                     const std::string& name_space, double seconds,
                                                     RedisCluster::Notice notice) {
  HET_RETURN_IF_ERROR(CheckNamespace(name_space));
  std::unique_ptr<RedisStore> store(new RedisStore(address, seconds, std::move(notice)));
  HET_RETURN_IF_ERROR(Borrowed(store.get())->Refresh(seconds));
  HET_RETURN_IF_ERROR(store->MakePartitions(name_space));
  return store;
}

// The first caller makes the partitions; later callers check that they match the namespace.
Status RedisStore::MakePartitions(const std::string& name_space) {
  const std::string key = MetaKey(name_space);
  Borrowed cluster(this);
  // HSETNX: if several workers open a new namespace at once, the first decides.
  for (const auto& [field, wanted] : {std::pair("partitions", std::to_string(kNewPartitions)),
                                      std::pair("hash_seed", std::to_string(RandomId()))}) {
    HET_RETURN_IF_ERROR(cluster->Ask(key, {"HSETNX", key, field, wanted}, seconds_).status());
  }
  HET_ASSIGN_OR_RETURN(auto found, FindPartitions(cluster.get(), name_space, seconds_));
  if (!found)
    return FailedPrecondition("the key '" + key + "' of the parameter server was deleted meanwhile");
  keys_ = std::move(found->keys);
  hash_seed_ = found->hash_seed;
  if (!found->made.empty()) {
    HET_RETURN_IF_ERROR(CheckRule(name_space, found->made));
    // With another count the partitions lie at other keys: creating them now would make a second set of rows.
    std::vector<RedisReply> first;
    HET_RETURN_IF_ERROR(
        cluster->AskAll({{keys_[0], {"HET.STAT", keys_[0], "TABLES"}}}, seconds_, &first, "HETNOPART "));
    if (!first[0].ok()) {
      return FailedPrecondition(
          "namespace '" + name_space + "' of the parameter server has " + std::to_string(keys_.size()) +
          " partitions, as the key '" + key + "' says, and the first of them, '" + keys_[0] +
          "', is not there: the number was changed, or the partition was deleted. Remedy: set '" + key +
          "' back, or restore a backup; to begin anew, delete '" + key + "' and all of '" + key + ":*'");
    }
  }
  const std::string count = std::to_string(keys_.size());
  std::vector<RedisCluster::Command> creations;
  for (const std::string& partition : keys_) {
    creations.push_back({partition,
                         {"HET.TABLE", partition, "CREATE", std::to_string(creations.size()), count,
                          std::to_string(hash_seed_)}});
  }
  std::vector<RedisReply> created;
  HET_RETURN_IF_ERROR(cluster->AskAll(creations, seconds_, &created));
  return cluster->Ask(key, {"HSETNX", key, "made", std::to_string(Layout::kRule)}, seconds_).status();
}

Result<RedisReply> RedisStore::Ask(uint32_t partition, const std::string& command,
                                   std::vector<std::string> words) {
  words.insert(words.begin(), {command, keys_[partition]});
  return Borrowed(this)->Ask(keys_[partition], words, seconds_, /*repeatable=*/command != "HET.LOAD");
}

Result<std::vector<RedisReply>> RedisStore::AskAll(const std::vector<RedisCluster::Command>& commands,
                                                   const char* fine) {
  std::vector<RedisReply> replies;
  HET_RETURN_IF_ERROR(Borrowed(this)->AskAll(commands, seconds_, &replies, fine));
  return replies;
}

Result<std::vector<RedisReply>> RedisStore::AskAll(const std::string& command,
                                                   const std::vector<std::string>& words, const char* fine) {
  std::vector<RedisCluster::Command> commands;
  for (const std::string& key : keys_) {
    commands.push_back({key, {command, key}});
    commands.back().words.insert(commands.back().words.end(), words.begin(), words.end());
  }
  return AskAll(commands, fine);
}

Status RedisStore::CreateTable(const Schema& schema) {
  const auto& limits = schema->spec().limits;
  return AskAll("HET.TABLE", {"ADD", limits ? schema->ToJson(*limits) : schema->ToJson()}).status();
}

Status RedisStore::DropTable(const TableSchema& schema) {
  // Another worker, or an interrupted attempt, may have dropped it in some partitions.
  return AskAll("HET.TABLE", {"DROP", schema.spec().name}, "no table '").status();
}

Status RedisStore::ClearTable(const TableSchema& schema) {
  return AskAll("HET.TABLE", {"CLEAR", schema.spec().name}).status();
}

Result<std::vector<RedisReply>> RedisStore::AskTable(const TableSchema& schema) {
  // Tables are in order of their ids, and a cursor is the next table's id.
  HET_ASSIGN_OR_RETURN(auto pages, AskAll("HET.STAT", {"TABLES", std::to_string(schema.id()), "COUNT", "1"}));
  std::vector<RedisReply> tables;
  for (RedisReply& page : pages) {
    RedisReply& table = tables.emplace_back();
    if (page.array.size() != 2 || page.array[1].array.size() != 1) continue;
    RedisReply& found = page.array[1].array[0];
    if (found.array.size() >= 6 && found.array[0].text() == schema.spec().name) table = std::move(found);
  }
  return tables;
}

Result<TableSize> RedisStore::Size(const TableSchema& schema) {
  TableSize size;
  HET_ASSIGN_OR_RETURN(const auto tables, AskTable(schema));
  for (const RedisReply& table : tables) {
    if (table.array.empty()) continue;
    size.rows += Number(table.array[3]);
    size.bytes += Number(table.array[4]);
  }
  return size;
}

Result<size_t> RedisStore::Load(uint32_t partition, const Bytes& chunk) {
  HET_ASSIGN_OR_RETURN(auto loaded, Ask(partition, "HET.LOAD", {std::string(chunk.begin(), chunk.end())}));
  return static_cast<size_t>(Number(loaded));
}

template <typename Fn>
Status RedisStore::ForPieces(const TableSchema& schema, Span<const Key> keys, size_t most, Fn fn) const {
  const TableLayout layout = LayoutOf(schema);
  std::vector<std::vector<size_t>> positions(layout.partitions());
  for (size_t i = 0; i < keys.size(); ++i) positions[layout.OfKey(keys[i])].push_back(i);
  for (uint32_t p = 0; p < positions.size(); ++p) {
    // Keys ascend in a frame.
    std::stable_sort(positions[p].begin(), positions[p].end(),
                     [&](size_t a, size_t b) { return keys[a] < keys[b]; });
    for (size_t begin = 0; begin < positions[p].size(); begin += most) {
      const size_t count = std::min(most, positions[p].size() - begin);
      const Span<const size_t> of(positions[p].data() + begin, count);
      Vector<Key> some;
      for (size_t i : of) some.push_back(keys[i]);
      HET_RETURN_IF_ERROR(fn(p, some, of));
    }
  }
  return Status();
}

Status RedisStore::Assign(const TableSchema& schema, Span<const Key> keys, const float* rows, bool with_slots,
                          const Clock* ages) {
  const size_t given = with_slots ? schema.row_floats() : schema.dim();
  std::vector<float> content;
  std::vector<Clock> ages_of_some;
  Bytes chunk;
  const auto load = [&](uint32_t p, const Vector<Key>& some, Span<const size_t> of) {
    ages_of_some.clear();
    content.resize(some.size() * schema.row_floats());
    for (size_t i = 0; i < some.size(); ++i) {
      float* const row = content.data() + i * schema.row_floats();
      ages_of_some.push_back(ages == nullptr ? 0 : ages[of[i]]);
      schema.InitRow(some[i], row);
      std::copy_n(rows + of[i] * given, given, row);
    }
    EncodeSet(schema, some, content.data(), &chunk, ages_of_some.data());
    return Load(p, chunk).status();
  };
  return ForPieces(schema, keys, RowsOf(schema, kMaxChunkBytes / 2), load);
}

Result<TableReply> RedisStore::Fetch(const TableSchema& schema, uint32_t partition, Vector<Key> keys) {
  Request request;
  request.partition = {partition, partitions(), hash_seed_};
  TableRequest& table = request.tables.emplace_back();
  table.table = schema.id();
  table.fetch_keys = std::move(keys);
  for (int attempt = 0;; ++attempt) {
    Bytes frame;
    Encode(request, &frame);
    HET_ASSIGN_OR_RETURN(const RedisReply answer,
                         Ask(partition, "HET.READ", {std::string(frame.begin(), frame.end())}));
    Reply reply;
    HET_RETURN_IF_ERROR(Decode({answer.bytes.data(), answer.bytes.size()}, &reply));
    const bool fits = reply.tables.size() == 1 && reply.tables[0].table == schema.id();
    if (fits && reply.status == FrameStatus::kOk) return std::move(reply.tables[0]);
    // The first answer brings the epoch; a load or clear changes it again.
    if (!fits || reply.status != FrameStatus::kEpoch || attempt == kMostEpochs) {
      return FailedPrecondition("partition " + std::to_string(partition) +
                                " of the parameter server gives no rows of table '" + schema.spec().name +
                                "': " + reply.message);
    }
    table.epoch = reply.tables[0].epoch;
    request.inc = reply.inc;
  }
}

Status RedisStore::Read(const TableSchema& schema, Span<const Key> keys, float* values) {
  const auto read = [&](uint32_t p, const Vector<Key>& some, Span<const size_t> of) -> Status {
    HET_ASSIGN_OR_RETURN(const TableReply reply, Fetch(schema, p, some));
    if (reply.fetched_clocks.size() != some.size() || reply.row_floats < schema.dim()) {
      return Status(Code::kInternal, "the parameter server answers with rows that were not requested");
    }
    ReplyRows rows(reply);
    for (size_t i = 0; i < some.size(); ++i) {
      float* const value = values + of[i] * schema.dim();
      const float* const row = rows.Next(reply.fetched_clocks[i]);
      if (row == nullptr) {
        schema.InitValue(some[i], value);
      } else {
        std::copy_n(row, schema.dim(), value);
      }
    }
    return Status();
  };
  return ForPieces(schema, keys, RowsOf(schema, kMaxChunkBytes), read);
}

Result<size_t> RedisStore::Remove(const TableSchema& schema, Span<const Key> keys) {
  size_t removed = 0;
  Bytes chunk;
  const auto remove = [&](uint32_t p, const Vector<Key>& some, Span<const size_t>) -> Status {
    EncodeRemove(schema, some, &chunk);
    HET_ASSIGN_OR_RETURN(const size_t gone, Load(p, chunk));
    removed += gone;
    return Status();
  };
  HET_RETURN_IF_ERROR(ForPieces(schema, keys, keys.size(), remove));
  return removed;
}

}  // namespace het
