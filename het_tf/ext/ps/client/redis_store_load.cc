// RedisStore's piecewise saving and loading of tables.
#include <algorithm>

#include "het_tf/core/store/chunk.h"
#include "het_tf/ext/ps/client/redis_changes.h"
#include "het_tf/ext/ps/client/redis_store.h"

namespace het {
namespace {

// Bytes of chunks sent together: a server holds them in memory beside its rows.
constexpr size_t kTogetherBytes = size_t{4} << 20;

// Reads the position from HET.STAT without TABLES, an array of names and values.
Position PositionOf(const RedisReply& stat) {
  Position position;
  for (size_t i = 0; i + 1 < stat.array.size(); i += 2) {
    const std::string name = stat.array[i].text();
    const RedisReply& value = stat.array[i + 1];
    if (name == "incarnation") position.incarnation = std::strtoull(value.text().c_str(), nullptr, 10);
    if (name == "changes") position.number = static_cast<uint64_t>(value.integer);
  }
  return position;
}

}  // namespace

Result<TableState> RedisStore::State(const TableSchema& schema) {
  const std::string& name = schema.spec().name;
  HET_ASSIGN_OR_RETURN(const auto stats, AskAll("HET.STAT", {}));
  HET_ASSIGN_OR_RETURN(const auto tables, AskTable(schema));
  TableState state;
  for (const RedisReply& stat : stats) state.positions.push_back(PositionOf(stat));
  for (const RedisReply& table : tables) {
    if (table.array.empty()) {
      return FailedPrecondition("partition " + std::to_string(state.rows.size()) +
                                " at the parameter server has no table '" + name + "'; it was dropped");
    }
    HET_ASSIGN_OR_RETURN(const auto spec, ParseTableSpec(table.array[1].text()));
    state.limits = spec.limits.value_or(TableLimits());
    state.rows.push_back(static_cast<uint64_t>(table.array[3].integer));
    state.clock_floor = std::max<Clock>(state.clock_floor, table.array[5].integer);
  }
  return state;
}

Status RedisStore::ScanSome(const TableSchema& schema, uint32_t partition, uint64_t* cursor,
                            RowBatch* batch) {
  // A cursor names its table; in another table's range, this one is done.
  const std::string prefix = std::to_string(schema.id()) + ":";
  const auto page =
      Ask(partition, "HET.SCAN", {prefix + std::to_string(*cursor), "COUNT", std::to_string(batch->left())});
  if (!page.ok()) return page.status();
  if (page.value().array.size() != 2) return Status(Code::kInternal, "HET.SCAN answered no page");
  const std::string next = page.value().array[0].text();
  const bool more = StartsWith(next, prefix);
  *cursor = more ? std::strtoull(next.c_str() + prefix.size(), nullptr, 10) : kScanned;
  const Bytes& chunk = page.value().array[1].bytes;
  return DecodeRows(Span<const uint8_t>(chunk.data(), chunk.size()), schema, batch);
}

Result<ChangesCount> RedisStore::CountChanges(const TableSchema& schema, Span<const Position> since,
                                              const std::vector<uint32_t>& some) {
  ChangesCount all;
  if (since.size() != partitions()) {
    all.kind = ChangesKind::kWhole;
    return all;
  }
  std::vector<RedisCluster::Command> commands;
  for (const uint32_t p : some) {
    commands.push_back({keys_[p],
                        {"HET.CHANGES", keys_[p], "SINCE", ToString(since[p]), "TABLE",
                         std::to_string(schema.id()), "COUNT"}});
  }
  HET_ASSIGN_OR_RETURN(const auto replies, AskAll(commands));
  for (const RedisReply& reply : replies) {
    ChangesCount count;
    if (reply.array.size() != 3 || !ParseChangesKind(reply.array[0].text(), &count.kind)) {
      return Status(Code::kInternal, "HET.CHANGES answered no counts");
    }
    count.rows = static_cast<uint64_t>(reply.array[1].integer);
    count.removed = static_cast<uint64_t>(reply.array[2].integer);
    all += count;
  }
  return all;
}

Status RedisStore::ChangesSome(const TableSchema& schema, uint32_t partition, ChangesScan* scan,
                               RowBatch* rows, Vector<Key>* removed) {
  const ChangesRequest next = NextOf(*scan, schema, *rows);
  HET_ASSIGN_OR_RETURN(RedisReply reply,
                       Ask(partition, "HET.CHANGES",
                           {"SINCE", ToString(next.since), "CURSOR", ToString(next.cursor), "MAXBYTES",
                            std::to_string(next.max_bytes), "TABLE", std::to_string(schema.id()), "STORED"}));
  ChangesPage page;
  if (!ReadChangesPage(&reply, &page)) {
    return Status(Code::kInternal, "HET.CHANGES answered no page");
  }
  return TakePage(page, schema, scan, rows, removed);
}

Status RedisStore::BeginLoad(const std::string& loader, uint32_t seconds) {
  const Status begun = AskAll("HET.TABLE", {"BEGIN", loader, std::to_string(seconds)}).status();
  // Undo a partial BEGIN; partitions that another loader has marked refuse this.
  if (!begun.ok()) static_cast<void>(AskAll("HET.TABLE", {"ABORT", loader}, " does not load "));
  return begun;
}

Status RedisStore::CommitLoad(const std::string& loader) {
  return AskAll("HET.TABLE", {"COMMIT", loader}).status();
}

Status RedisStore::AbortLoad(const std::string& loader) {
  return AskAll("HET.TABLE", {"ABORT", loader}, " does not load ").status();
}

Status RedisStore::LoadBatch(const TableSchema& schema, const RowBatch& rows) {
  const TableLayout layout = LayoutOf(schema);
  std::vector<std::vector<uint32_t>> of_partition(layout.partitions());
  for (size_t i = 0; i < rows.size(); ++i) {
    of_partition[layout.OfKey(rows.keys()[i])].push_back(static_cast<uint32_t>(i));
  }
  // Rows replace existing rows, so a command may be repeated.
  std::vector<RedisCluster::Command> commands;
  size_t bytes = 0;
  const auto send = [&]() -> Status {
    if (commands.empty()) return Status();
    const Status sent = AskAll(commands).status();
    commands.clear();
    bytes = 0;
    return sent;
  };
  const size_t fit = RowBatch::RowsOf(kTogetherBytes, schema.row_floats());
  Bytes chunk;
  for (uint32_t p = 0; p < partitions(); ++p) {
    const std::vector<uint32_t>& which = of_partition[p];
    for (size_t begin = 0; begin < which.size(); begin += fit) {
      EncodeRows(schema, rows, {which.data() + begin, std::min(fit, which.size() - begin)}, &chunk);
      if (bytes + chunk.size() > kTogetherBytes) HET_RETURN_IF_ERROR(send());
      commands.push_back({keys_[p], {"HET.LOAD", keys_[p], std::string(chunk.begin(), chunk.end())}});
      bytes += chunk.size();
    }
  }
  return send();
}

Status RedisStore::RaiseFloor(const TableSchema& schema, Clock floor) {
  Bytes chunk;
  EncodeFloor(schema, floor, &chunk);
  return AskAll("HET.LOAD", {std::string(chunk.begin(), chunk.end())}).status();
}

}  // namespace het
