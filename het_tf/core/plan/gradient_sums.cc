#include "het_tf/core/plan/gradient_sums.h"

#include <limits>
#include <string>

#include "het_tf/core/plan/step.h"

namespace het {
namespace {

// A part: magic, code, signature; then, for an error, its text; else planned, active for every feature, and
// for each table keys, sums, idle keys, and the feature of each idle key.
constexpr uint32_t kMagic = 0x33534748;  // "HGS3"

void PackError(const Status& error, uint64_t signature, uint32_t workers, Bytes* bytes,
               Vector<int32_t>* splits) {
  bytes->clear();
  splits->clear();
  Writer writer(bytes);
  for (uint32_t w = 0; w < workers; ++w) {
    const size_t begin = bytes->size();
    writer.Fixed(kMagic);
    writer.Fixed(static_cast<uint32_t>(error.code()));
    writer.Fixed(signature);
    writer.Varint(error.message().size());
    writer.Raw(error.message().data(), error.message().size());
    splits->push_back(static_cast<int32_t>(bytes->size() - begin));
  }
}

// The indices of each owner's keys, owner after owner; [begins[w], begins[w + 1]) are owner w's.
struct ByOwner {
  Vector<uint32_t> numbers;
  Vector<size_t> begins;

  ByOwner(const Vector<uint32_t>& owners, uint32_t workers) : numbers(owners.size()), begins(workers + 1) {
    for (uint32_t owner : owners) ++begins[owner + 1];
    for (uint32_t w = 0; w < workers; ++w) begins[w + 1] += begins[w];
    Vector<size_t> at(begins.begin(), begins.end());
    for (size_t i = 0; i < owners.size(); ++i) numbers[at[owners[i]]++] = static_cast<uint32_t>(i);
  }
  Span<const uint32_t> of(uint32_t w) const {
    return {numbers.data() + begins[w], begins[w + 1] - begins[w]};
  }
};

void PackKeys(const Vector<Key>& keys, Span<const uint32_t> numbers, Vector<Key>* scratch, Writer* writer) {
  scratch->clear();
  for (uint32_t number : numbers) scratch->push_back(keys[number]);
  writer->Varint(scratch->size());
  writer->KeyRun(*scratch);
}

// Collects the sums of one group, and the keys of its inactive features.
void Collect(Step* step, const BatchPlan::Group& group, GradientSums::OfTable* table) {
  const BatchPlan& plan = step->plan;
  const size_t dim = table->dim;
  const Key* keys = plan.keys(group);
  const uint8_t* touched = step->touched(group);
  const float* sums = step->values(group);
  for (size_t u = 0; u < group.uniques; ++u) {
    if (!touched[u]) continue;
    table->keys.push_back(keys[u]);
    table->sums.insert(table->sums.end(), sums + u * dim, sums + (u + 1) * dim);
  }
  // Entries are in the order of features, so comparing with a key's last feature detects a new pair.
  Vector<uint32_t> last;
  const BatchPlan::Entry* entries = plan.entry(group);
  const uint32_t* inverse = plan.inverse(group);
  for (size_t e = 0; e < group.entries; ++e) {
    const uint32_t feature = entries[e].feature, u = inverse[e];
    if (step->active[feature] || touched[u]) continue;
    if (last.empty()) last.assign(group.uniques, 0xffffffffu);
    if (last[u] == feature) continue;
    last[u] = feature;
    table->idle_keys.push_back(keys[u]);
    table->idle_features.push_back(feature);
  }
}

}  // namespace

uint32_t Owners::Of(uint64_t table, Key key, uint64_t hash) const {
  if (of_step != nullptr) return of_step(table, key);
  return static_cast<uint32_t>((hash >> 16 & 0xffff) * workers >> 16);
}

void CollectSums(Span<const TablePtr> tables, Step* step, GradientSums* sums) {
  sums->active.assign(step->active.begin(), step->active.end());
  sums->tables.assign(tables.size(), GradientSums::OfTable());
  for (size_t t = 0; t < tables.size(); ++t) sums->tables[t].dim = tables[t]->schema->dim();
  for (const BatchPlan::Group& group : step->plan.groups()) {
    if (group.entries != 0) Collect(step, group, &sums->tables[group.table]);
  }
}

void SetOwners(Span<const TablePtr> tables, const PartitionId& store, const Owners& owners,
               GradientSums* sums) {
  sums->planned = owners.planned;
  const auto set = [&](const Table& table, const Vector<Key>& keys, Vector<uint32_t>* of) {
    of->resize(keys.size());
    const uint64_t id = table.schema->id();
    for (size_t i = 0; i < keys.size(); ++i) {
      (*of)[i] = owners.Of(id, keys[i], HashKey(keys[i], store.hash_seed));
    }
  };
  for (size_t t = 0; t < tables.size(); ++t) {
    set(*tables[t], sums->tables[t].keys, &sums->tables[t].owners);
    set(*tables[t], sums->tables[t].idle_keys, &sums->tables[t].idle_owners);
  }
}

void GradientSums::Add(const GradientSums& other, Span<const uint32_t> table_of, float factor) {
  const uint32_t first = static_cast<uint32_t>(active.size());
  active.insert(active.end(), other.active.begin(), other.active.end());
  for (size_t t = 0; t < other.tables.size(); ++t) {
    if (table_of[t] == kNoTable) continue;
    const OfTable& from = other.tables[t];
    OfTable& to = tables[table_of[t]];
    to.keys.insert(to.keys.end(), from.keys.begin(), from.keys.end());
    for (const float value : from.sums) to.sums.push_back(value * factor);
    to.idle_keys.insert(to.idle_keys.end(), from.idle_keys.begin(), from.idle_keys.end());
    for (const uint32_t feature : from.idle_features) to.idle_features.push_back(first + feature);
  }
}

Status PackSums(const Status& error, const GradientSums& sums, uint64_t signature, uint32_t workers,
                Bytes* bytes, Vector<int32_t>* splits) {
  if (!error.ok()) {
    PackError(error, signature, workers, bytes, splits);
    return Status();
  }
  bytes->clear();
  splits->clear();
  Writer writer(bytes);
  Vector<Key> scratch;
  std::vector<ByOwner> owners, idle_owners;
  for (const GradientSums::OfTable& table : sums.tables) {
    owners.emplace_back(table.owners, workers);
    idle_owners.emplace_back(table.idle_owners, workers);
  }
  for (uint32_t w = 0; w < workers; ++w) {
    const size_t begin = bytes->size();
    writer.Fixed(kMagic);
    writer.Fixed(static_cast<uint32_t>(Code::kOk));
    writer.Fixed(signature);
    writer.Fixed(sums.planned);
    writer.Raw(sums.active.data(), sums.active.size());
    for (size_t t = 0; t < sums.tables.size(); ++t) {
      const GradientSums::OfTable& table = sums.tables[t];
      const Span<const uint32_t> mine = owners[t].of(w), idle = idle_owners[t].of(w);
      PackKeys(table.keys, mine, &scratch, &writer);
      for (uint32_t u : mine)
        writer.Raw(table.sums.data() + size_t{u} * table.dim, table.dim * sizeof(float));
      PackKeys(table.idle_keys, idle, &scratch, &writer);
      for (uint32_t u : idle) writer.Varint(table.idle_features[u]);
    }
    const size_t length = bytes->size() - begin;
    if (length > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
      Status too_much(Code::kResourceExhausted, "the gradients for one worker take " +
                                                    std::to_string(length) +
                                                    " bytes; at most 2 GiB can be sent in a step. Use a "
                                                    "smaller batch, or more workers");
      PackError(too_much, signature, workers, bytes, splits);
      return too_much;
    }
    splits->push_back(static_cast<int32_t>(length));
  }
  return Status();
}

namespace {

struct Part {
  Reader reader;
  const uint8_t* active;
  uint64_t planned;
};

Status Disagree(uint64_t first, uint64_t other, const std::string& who) {
  const auto batch = [](uint64_t planned) {
    return planned == 0 ? "one that was not planned" : "number " + std::to_string(planned) + " of the pass";
  };
  return FailedPrecondition(
      "rows travel on demand and their gradients are summed, but the batch of worker 0 is " + batch(first) +
      ", and that of " + who + " is " + batch(other) +
      ": they do not agree on who updates a row. No worker has updated one. Call "
      "het_tf.flush(all_ranks=True) on all ranks and read shard_on_demand by new iterators, not by "
      "restored ones; or train without accumulate");
}

// Reads one worker's header. `parts` gets the bytes after it.
Status ReadHeader(const SumsLayout& layout, Span<const uint8_t> bytes, size_t worker, size_t workers,
                  std::vector<Part>* parts) {
  const std::string who = "worker " + std::to_string(worker) + " of " + std::to_string(workers);
  Reader reader(bytes);
  const uint32_t magic = reader.Fixed<uint32_t>();
  const uint32_t code = reader.Fixed<uint32_t>();
  const uint64_t signature = reader.Fixed<uint64_t>();
  if (!reader.ok() || magic != kMagic) {
    return Status(Code::kInternal, who + " sent no gradients of het_tf; all workers need the same version");
  }
  if (code != static_cast<uint32_t>(Code::kOk)) {
    const size_t size = reader.Count();
    const uint8_t* text = reader.Raw(size);
    const std::string message = text == nullptr ? "" : std::string(reinterpret_cast<const char*>(text), size);
    // An unknown code must not reach TensorFlow.
    const Code kind =
        code <= static_cast<uint32_t>(Code::kDataLoss) ? static_cast<Code>(code) : Code::kInternal;
    return Status(kind, who + ": " + message + " (no worker has updated a row)");
  }
  if (signature != layout.signature) {
    return FailedPrecondition(
        who +
        " sent the gradients of another layer: all workers must build the same layers, with the same tables, "
        "and call them in the same order. No row was changed");
  }
  const uint64_t planned = reader.Fixed<uint64_t>();
  const uint8_t* active = reader.Raw(layout.table_of_feature.size());
  if (!reader.ok()) return Status(Code::kInternal, who + " sent gradients that are cut off");
  parts->push_back({reader, active, planned});
  const uint64_t first = parts->front().planned;
  return planned == first ? Status() : Disagree(first, planned, who);
}

bool ReadTable(uint32_t dim, const Vector<uint8_t>& active, Reader* reader, Vector<Key>* scratch,
               MergedSums::OfTable* table) {
  reader->KeyRun(reader->Count(), scratch);
  const uint8_t* sums = reader->ok() ? reader->Raw(scratch->size() * dim * sizeof(float)) : nullptr;
  if (!reader->ok()) return false;
  table->keys.insert(table->keys.end(), scratch->begin(), scratch->end());
  const size_t at = table->sums.size();
  table->sums.resize(at + scratch->size() * dim);
  if (!scratch->empty()) std::memcpy(table->sums.data() + at, sums, scratch->size() * dim * sizeof(float));
  reader->KeyRun(reader->Count(), scratch);
  for (Key key : *scratch) {
    const uint64_t feature = reader->Varint();
    if (!reader->ok() || feature >= active.size()) return false;
    if (!active[feature]) continue;
    table->keys.push_back(key);
    table->sums.resize(table->sums.size() + dim);
  }
  return reader->ok();
}

}  // namespace

Status MergeSums(const SumsLayout& layout, Span<const uint8_t> bytes, Span<const int32_t> lengths,
                 MergedSums* merged) {
  merged->tables.assign(layout.dims.size(), MergedSums::OfTable());
  std::vector<Part> parts;
  Status error;
  size_t at = 0;
  for (size_t w = 0; w < lengths.size(); ++w) {
    const size_t length = lengths[w] < 0 ? bytes.size() + 1 : static_cast<size_t>(lengths[w]);
    if (length > bytes.size() - at) return Status(Code::kInternal, "the parts exceed the received bytes");
    const Status status = ReadHeader(layout, bytes.subspan(at, length), w, lengths.size(), &parts);
    const bool tells_more = status.code() == Code::kInvalidArgument && error.code() != status.code();
    if (!status.ok() && (error.ok() || tells_more)) error = status;
    at += length;
  }
  HET_RETURN_IF_ERROR(error);
  if (at != bytes.size()) return Status(Code::kInternal, "the parts are shorter than the received bytes");
  Vector<uint8_t> active(layout.table_of_feature.size());
  for (const Part& part : parts) {
    for (size_t f = 0; f < active.size(); ++f) active[f] |= part.active[f];
  }
  for (size_t f = 0; f < active.size(); ++f) {
    if (active[f]) merged->tables[layout.table_of_feature[f]].active = true;
  }
  Vector<Key> scratch;
  for (size_t w = 0; w < parts.size(); ++w) {
    for (size_t t = 0; t < merged->tables.size(); ++t) {
      if (!ReadTable(layout.dims[t], active, &parts[w].reader, &scratch, &merged->tables[t])) {
        return Status(Code::kInternal, "worker " + std::to_string(w) + " sent gradients that are damaged");
      }
    }
    if (parts[w].reader.left() != 0) {
      return Status(Code::kInternal, "worker " + std::to_string(w) + " sent more than its gradients");
    }
  }
  return Status();
}

}  // namespace het
