// Reads chunks into a partition, or into rows.

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/chunk_format.h"

namespace het {

using namespace chunk;  // NOLINT: this file and chunk_writer.cc are what it is for

namespace {

constexpr size_t kRowTimeAt = 8 + 8;
// Larger than any clock that may be loaded, to leave room for later ticks.
constexpr Clock kMaxSavedClock = 2 * Shard::kMaxClock;

enum class Mode { kBuild, kLoad, kSet };  // for rows; kBuild: keys are unique

Status Broken(const char* what) { return InvalidArgument(std::string("damaged chunk: ") + what); }

std::string ToString(const PartitionId& id) {
  return "partition " + std::to_string(id.index) + " of " + std::to_string(id.count) + " with hash seed " +
         std::to_string(id.hash_seed);
}

Status ReadHead(Reader* r, PartitionId* id) {
  id->index = r->Fixed<uint32_t>();
  id->count = r->Fixed<uint32_t>();
  id->hash_seed = r->Fixed<uint64_t>();
  return r->ok() && r->left() == 0 ? Status() : Broken("a head of another length");
}

void ReadMeta(Reader* r, RowMeta* meta) {
  meta->key = r->Fixed<Key>();
  meta->clock = r->Fixed<Clock>();
  meta->last_used = r->Fixed<uint32_t>();
  meta->count = r->Fixed<uint16_t>();
}

ClientId ReadClient(Reader* r) {
  const auto high = r->Fixed<uint64_t>();
  return {high, r->Fixed<uint64_t>()};
}

// Limits a clock to `most`: a server must be able to restart from what it has written.
void Clamp(Clock most, Clock* clock, size_t* clamped) {
  if (*clock >= 0 && *clock <= most) return;
  *clock = Shard::kMaxClock;
  ++*clamped;
}

Status ReadTable(Reader* r, Partition* partition, size_t* clamped) {
  const uint64_t epoch = r->Fixed<uint64_t>();
  Clock floor = r->Fixed<Clock>();
  Clamp(Shard::kMaxClock, &floor, clamped);
  const size_t length = r->left();
  const uint8_t* text = r->Raw(length);
  if (text == nullptr) return Broken("a truncated table");
  HET_ASSIGN_OR_RETURN(auto spec, ParseTableSpec(std::string(reinterpret_cast<const char*>(text), length)));
  HET_ASSIGN_OR_RETURN(auto schema, TableSchema::Create(std::move(spec)));
  HET_RETURN_IF_ERROR(partition->CreateTable(schema, epoch));
  partition->Find(schema->id())->RaiseFloor(floor);
  return Status();
}

// A chunk's rows: their table and their bytes.
struct RowsOfChunk {
  Shard* shard = nullptr;
  uint32_t count = 0;
  size_t data_bytes = 0;  // of one row's floats
  Span<const uint8_t> bytes;
};

Result<RowsOfChunk> ReadRowsHead(Reader* r, Partition* partition) {
  const uint64_t table = r->Fixed<uint64_t>();
  const uint32_t shape = r->Fixed<uint32_t>();
  const uint32_t count = r->Fixed<uint32_t>();
  if (!r->ok()) return Broken("truncated rows");
  Shard* shard = partition->Find(table);
  if (shard == nullptr) {
    return InvalidArgument("rows of a table with id " + std::to_string(table) +
                           ", which is not here; create it first");
  }
  if (shape != ShapeOf(shard->schema())) {
    return InvalidArgument("rows of " + ShapeText(shape) + "; those of table '" +
                           shard->schema().spec().name + "' have " + ShapeText(ShapeOf(shard->schema())));
  }
  const size_t data_bytes = RowBytesOf(shape);
  const size_t left = r->left();
  if (left / (kRowHead + data_bytes) != count || left % (kRowHead + data_bytes) != 0) {
    return Broken("it does not have its stated number of rows");
  }
  return RowsOfChunk{shard, count, data_bytes, {r->Raw(left), left}};
}

struct PlacedRow {
  uint32_t row;
  bool created;
};

// Makes a row of the store for each of the chunk's rows. After an error only earlier rows exist.
Status PlaceRows(const RowsOfChunk& chunk, Mode mode, Vector<PlacedRow>* placed) {
  Vector<PlacedRow>& rows = *placed;
  RowStore& store = chunk.shard->rows();
  auto undo = [&] {
    for (const PlacedRow& row : rows) {
      if (row.created) store.Erase(row.row);
    }
  };
  bool twice = false;
  try {
    rows.reserve(chunk.count);
    Reader keys(chunk.bytes);
    for (uint32_t i = 0; i < chunk.count; ++i) {
      const Key key = keys.Fixed<Key>();
      keys.Raw(kRowHead - sizeof(Key) + chunk.data_bytes);
      const uint64_t hash = store.Hash(key);
      uint32_t row = store.Find(key, hash);
      const bool created = row == kNoRow;
      if (created) row = chunk.shard->Insert(key, hash);
      twice = twice || !created;
      rows.push_back({row, created});
    }
  } catch (const std::bad_alloc&) {
    undo();
    throw;
  }
  if (mode == Mode::kBuild && twice) {
    undo();
    return Broken("a key comes twice");
  }
  return Status();
}

// First all rows, then all contents, so that failures come before changes.
Status ReadRows(Reader* r, Mode mode, Partition* partition, Loaded* loaded) {
  HET_ASSIGN_OR_RETURN(const RowsOfChunk chunk, ReadRowsHead(r, partition));
  Vector<PlacedRow> rows;
  HET_RETURN_IF_ERROR(PlaceRows(chunk, mode, &rows));
  const uint64_t number = partition->RowsChanged(chunk.shard->schema().id());
  RowStore& store = chunk.shard->rows();
  Reader content(chunk.bytes);
  const Clock most = mode == Mode::kBuild ? kMaxSavedClock : Shard::kMaxClock;
  for (const PlacedRow& row : rows) {
    RowMeta& meta = store.meta(row.row);
    const RowMeta before = meta;
    ReadMeta(&content, &meta);
    if (mode == Mode::kSet) {
      const RowMeta sent = meta;
      meta = before;
      CountTick(sent.last_used, &meta);
      chunk.shard->Renew(row.row, sent.clock);
    } else {
      Clamp(most, &meta.clock, &loaded->clamped);
    }
    chunk.shard->RaiseNewest(meta.clock);
    chunk.shard->MarkChanged(row.row, number);
    std::memcpy(store.data(row.row), content.Raw(chunk.data_bytes), chunk.data_bytes);
  }
  loaded->rows = chunk.count;
  return Status();
}

Status RemoveRows(Reader* r, Partition* partition, size_t* removed) {
  Shard* shard = partition->Find(r->Fixed<uint64_t>());
  if (!r->ok() || r->left() % sizeof(Key) != 0) return Broken("truncated keys");
  if (shard == nullptr) return InvalidArgument("keys of a table that is not here");
  while (r->left() > 0) {
    const uint32_t row = shard->rows().Find(r->Fixed<Key>());
    if (row == kNoRow) continue;
    partition->RemoveRow(shard, row);
    ++*removed;
  }
  return Status();
}

Status ReadClients(Reader* r, Partition* partition) {
  if (r->left() % kClientBytes != 0) return Broken("truncated clients");
  while (r->left() > 0) {
    ClientState& client = partition->clients().At(ReadClient(r));
    client.last_seq = r->Fixed<uint64_t>();
    client.time = r->Fixed<uint32_t>();
  }
  return Status();
}

Status ForgetClients(Reader* r, Partition* partition) {
  if (r->left() % sizeof(ClientId) != 0) return Broken("truncated clients");
  while (r->left() > 0) partition->clients().Forget(ReadClient(r));
  return Status();
}

Status ReadEpoch(Reader* r, Partition* partition) {
  Shard* shard = partition->Find(r->Fixed<uint64_t>());
  const uint64_t epoch = r->Fixed<uint64_t>();
  if (!r->ok() || r->left() != 0 || epoch == 0) return Broken("an invalid epoch");
  if (shard == nullptr) return InvalidArgument("an epoch of a table that is not here");
  shard->set_epoch(epoch);
  return Status();
}

Status ReadLoading(Reader* r, Partition* partition) {
  LoadMark mark;
  mark.since = r->Fixed<uint32_t>();
  mark.until = r->Fixed<uint32_t>();
  const size_t length = r->left();
  const uint8_t* name = r->Raw(length);
  if (name == nullptr || length == 0) return Broken("a load without a loader");
  mark.loader.assign(reinterpret_cast<const char*>(name), length);
  partition->SetLoadMark(mark);
  return Status();
}

// Any chunk of a whole partition, but for its head.
Status ReadPart(Kind kind, Reader* r, Mode mode, Partition* partition, Loaded* loaded) {
  switch (kind) {
    case Kind::kTable:
      return ReadTable(r, partition, &loaded->clamped);
    case Kind::kRows:
      return ReadRows(r, mode, partition, loaded);
    case Kind::kClients:
      return ReadClients(r, partition);
    case Kind::kLoading:
      return ReadLoading(r, partition);
    case Kind::kEnd:
      return r->left() == 0 ? Status() : Broken("an end with a body");
    default:
      return Broken("of a kind that is not part of a partition");
  }
}

}  // namespace

Result<Kind> chunk::ReadKind(Reader* r) {
  if (r->Fixed<uint32_t>() != kMagic) return Broken("its magic number is wrong");
  const uint8_t version = r->Fixed<uint8_t>();
  if (version != kVersion) {
    return InvalidArgument("chunk version " + std::to_string(version) + "; this side reads version " +
                           std::to_string(kVersion) + ": upgrade the older side");
  }
  const Kind kind = r->Fixed<Kind>();
  if (r->Fixed<uint16_t>() != 0 || !r->ok()) return Broken("its head is truncated");
  return kind;
}

Status ChunkReader::Add(Span<const uint8_t> chunk) {
  Reader r(chunk);
  HET_ASSIGN_OR_RETURN(const Kind kind, ReadKind(&r));
  if (complete_) return Broken("it comes after the end");
  if ((kind == Kind::kHead) != (partition_ == nullptr)) return Broken("a partition has one head, at first");
  if (kind == Kind::kHead) {
    PartitionId id;
    HET_RETURN_IF_ERROR(ReadHead(&r, &id));
    partition_ = std::make_unique<Partition>(id, incarnation_);
    return Status();
  }
  Loaded loaded;
  HET_RETURN_IF_ERROR(ReadPart(kind, &r, Mode::kBuild, partition_.get(), &loaded));
  clamped_ += loaded.clamped;
  complete_ = kind == Kind::kEnd;
  return Status();
}

Status LoadChunk(Span<const uint8_t> chunk, Partition* partition, Loaded* loaded, uint64_t epoch) {
  Loaded unasked;
  if (loaded == nullptr) loaded = &unasked;
  *loaded = Loaded();
  Reader r(chunk);
  HET_ASSIGN_OR_RETURN(const Kind kind, ReadKind(&r));
  switch (kind) {
    case Kind::kHead: {
      PartitionId id;
      HET_RETURN_IF_ERROR(ReadHead(&r, &id));
      if (id == partition->id()) return Status();
      return InvalidArgument("the chunk is of " + ToString(id) + "; this is " + ToString(partition->id()));
    }
    case Kind::kRows: {
      const uint64_t table = Reader(r).Fixed<uint64_t>();
      HET_RETURN_IF_ERROR(ReadRows(&r, Mode::kLoad, partition, loaded));
      partition->clients().ForgetAll();
      if (epoch != 0) partition->Find(table)->set_epoch(epoch);
      return Status();
    }
    case Kind::kSet:
      return ReadRows(&r, Mode::kSet, partition, loaded);
    case Kind::kRemove:
      return RemoveRows(&r, partition, &loaded->rows);
    case Kind::kForget:
      return ForgetClients(&r, partition);
    case Kind::kEpoch:
      return ReadEpoch(&r, partition);
    default:
      return ReadPart(kind, &r, Mode::kLoad, partition, loaded);
  }
}

bool TakesMemory(Span<const uint8_t> chunk) {
  Reader r(chunk);
  const auto kind = ReadKind(&r);
  return kind.ok() && (kind.value() == Kind::kTable || kind.value() == Kind::kRows ||
                       kind.value() == Kind::kSet || kind.value() == Kind::kClients);
}

bool StampSet(Span<const uint8_t> chunk, uint32_t now, Bytes* stamped) {
  Reader r(chunk);
  if (const auto kind = ReadKind(&r); !kind.ok() || kind.value() != Kind::kSet) return false;
  r.Fixed<uint64_t>();
  const size_t row_bytes = kRowHead + RowBytesOf(r.Fixed<uint32_t>());
  stamped->assign(chunk.begin(), chunk.end());
  for (size_t at = kRowsHead; at + row_bytes <= stamped->size(); at += row_bytes) {
    std::memcpy(stamped->data() + at + kRowTimeAt, &now, sizeof(now));
  }
  return true;
}

bool EncodeEpoch(Span<const uint8_t> chunk, uint64_t epoch, Bytes* behind) {
  Reader r(chunk);
  if (const auto kind = ReadKind(&r); !kind.ok() || kind.value() != Kind::kRows) return false;
  const uint64_t table = r.Fixed<uint64_t>();
  Writer w = Begin(Kind::kEpoch, behind);
  w.Fixed(table);
  w.Fixed(epoch);
  return true;
}

Status DecodeRows(Span<const uint8_t> chunk, const TableSchema& schema, RowBatch* rows) {
  if (chunk.size() == 0) return Status();
  Reader r(chunk);
  HET_ASSIGN_OR_RETURN(const Kind kind, ReadKind(&r));
  if (kind != Kind::kRows) return Broken("it has no rows");
  const bool wanted = r.Fixed<uint64_t>() == schema.id();
  const uint32_t shape = r.Fixed<uint32_t>();
  const uint32_t count = r.Fixed<uint32_t>();
  if (!r.ok() || (wanted && shape != ShapeOf(schema))) return Broken("rows of another width");
  if (!wanted) return Status();
  if (r.left() != count * (kRowHead + RowBytesOf(shape))) return Broken("truncated rows");
  if (count > rows->left()) return Broken("more rows than were asked for");
  Vector<float> words(schema.stored().words());
  Vector<float> row(schema.row_floats());
  for (uint32_t i = 0; i < count; ++i) {
    RowMeta meta{};
    ReadMeta(&r, &meta);
    const uint8_t* const bytes = r.Raw(RowBytesOf(shape));
    if (!schema.stored().exact()) {
      std::memcpy(words.data(), bytes, RowBytesOf(shape));
      schema.stored().Read(words.data(), row.data());
    }
    rows->Add(meta, schema.stored().exact() ? static_cast<const void*>(bytes) : row.data());
  }
  return Status();
}

}  // namespace het
