#include "tests/ext/gpu/device/check/side.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <tuple>

namespace het::device_check {
namespace {

constexpr size_t kAlignment = 256;

// Offsets of a step's feature arrays in one buffer.
struct Places {
  std::vector<size_t> at;
  size_t bytes = 0;
};

Places Lay(const std::vector<size_t>& counts, size_t element, bool unaligned) {
  Places places;
  for (const size_t n : counts) {
    places.bytes = (places.bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (unaligned) places.bytes += element;
    places.at.push_back(places.bytes);
    places.bytes += n * element;
  }
  return places;
}

}  // namespace

Side::Side(const Library& library, size_t calls, uint64_t seed)
    : library_(library), random_(seed), calls_(calls), use_tables_(calls) {
  if (library_.Seed != nullptr) library_.Seed(seed);
  Must(library_.CreateContext(0, &context_), "CreateContext");
  streams_ = library_.Streams();
  for (Call& call : calls_) Must(library_.CreateCall(context_, &call.call), "CreateCall");
}

Side::~Side() {
  for (Call& call : calls_) {
    library_.DestroyCall(context_, call.call);
    for (Buffer* buffer : {&call.rows, &call.gradients}) library_.Free(context_, buffer->memory);
  }
  for (HetDevTable* table : tables_) library_.DestroyTable(context_, table);
  library_.DestroyContext(context_);
}

void Side::Must(int code, const char* what) const {
  if (code == HET_DEV_OK) return;
  throw std::runtime_error(library_.path + ": " + what + " answers " + std::to_string(code) + ": " +
                           library_.Error());
}

Reply Side::Answered(int code) const {
  Reply reply;
  reply.code = code;
  if (code != HET_DEV_OK) reply.error = library_.Error();
  return reply;
}

void Side::Ensure(Buffer* buffer, size_t bytes) {
  if (bytes <= buffer->bytes) return;
  library_.Free(context_, buffer->memory);
  *buffer = Buffer();
  Must(library_.Malloc(context_, bytes, &buffer->memory), "Malloc");
  buffer->bytes = bytes;
}

Reply Side::CreateTable(const HetDevTableConfig& config) {
  HetDevTable* table = nullptr;
  Reply reply = Answered(library_.CreateTable(context_, &config, &table));
  if (reply.code != HET_DEV_OK) return reply;
  tables_.push_back(table);
  configs_.push_back(config);
  return reply;
}

void Side::Describe(size_t number, const Step& step) {
  Call& call = calls_[number];
  call.uses.clear();
  call.trusted.clear();
  call.trusted.reserve(step.uses.size());
  call.features.clear();
  call.floats.clear();
  use_tables_[number].clear();
  for (const Use& use : step.uses) {
    call.uses.push_back({tables_[use.table], use.check, use.stamp, use.pinned_from, use.push_bound,
                         use.push_every, use.learning_rate,
                         use.trusted.empty() ? nullptr : call.trusted.emplace_back(use.trusted).data()});
    use_tables_[number].push_back(use.table);
  }
  for (const Feature& feature : step.features) {
    HetDevFeature described = {};
    described.use = feature.use;
    described.n = feature.ids.size();
    described.has_padding = feature.has_padding;
    described.padding_id = feature.padding_id;
    call.features.push_back(described);
    call.floats.push_back(feature.ids.size() * configs_[step.uses[feature.use].table].dim);
  }
  call.batch = {call.uses.data(), static_cast<uint32_t>(call.uses.size()), call.features.data(),
                static_cast<uint32_t>(call.features.size())};
}

void Side::BringIds(size_t number, const Step& step) {
  Describe(number, step);
  Call& call = calls_[number];
  const Places rows = Lay(call.floats, sizeof(float), step.unaligned);
  Ensure(&call.rows, rows.bytes);
  for (std::vector<int64_t>& ids : call.ids) std::fill(ids.begin(), ids.end(), 0x3333333333333333);
  call.ids.resize(step.features.size());
  for (size_t f = 0; f < step.features.size(); ++f) {
    if (step.features[f].ids.empty()) continue;
    call.ids[f] = std::vector<int64_t>(step.features[f].ids);
    call.features[f].ids = call.ids[f].data();
    if (step.features[f].wants_rows) {
      call.features[f].rows = reinterpret_cast<float*>(static_cast<char*>(call.rows.memory) + rows.at[f]);
    }
  }
  const std::vector<uint32_t> blank(rows.bytes / sizeof(uint32_t), kUnwritten);
  if (rows.bytes > 0) {
    Must(library_.CopyIn(context_, call.rows.memory, blank.data(), rows.bytes, AnyStream()), "CopyIn");
  }
}

void Side::BringGradients(size_t number, const Step& step, bool ids) {
  Step gradients = step;
  for (Feature& feature : gradients.features) feature.wants_rows = false;
  BringIds(number, gradients);
  Call& call = calls_[number];
  for (HetDevFeature& feature : call.features) feature.ids = ids ? feature.ids : nullptr;
  const Places places = Lay(call.floats, sizeof(float), step.unaligned);
  Ensure(&call.gradients, places.bytes);
  std::vector<char> bytes(places.bytes, '\x7f');
  for (size_t f = 0; f < step.features.size(); ++f) {
    if (call.floats[f] == 0) continue;
    std::memcpy(bytes.data() + places.at[f], step.features[f].gradients.data(),
                call.floats[f] * sizeof(float));
    call.features[f].gradients =
        reinterpret_cast<const float*>(static_cast<char*>(call.gradients.memory) + places.at[f]);
  }
  if (places.bytes > 0) {
    Must(library_.CopyIn(context_, call.gradients.memory, bytes.data(), places.bytes, AnyStream()), "CopyIn");
  }
}

void Side::CopyWanted(const HetDevWanted& wanted, size_t uses, Reply* reply) const {
  for (uint64_t i = 0; i < wanted.n; ++i)
    reply->wanted.push_back({wanted.use[i], wanted.keys[i], wanted.bases[i]});
  std::sort(reply->wanted.begin(), reply->wanted.end(), [](const Wanted& a, const Wanted& b) {
    return std::tie(a.use, a.key, a.base) < std::tie(b.use, b.key, b.base);
  });
  if (wanted.reads != nullptr) reply->reads.assign(wanted.reads, wanted.reads + uses);
  if (wanted.hits != nullptr) reply->hits.assign(wanted.hits, wanted.hits + uses);
}

void Side::CopyUpdates(const HetDevExport& from, const std::vector<size_t>& row_floats, Reply* reply) const {
  for (uint32_t i = 0; i < from.n; ++i) {
    const HetDevUpdates& of = from.of[i];
    if (of.use >= row_floats.size()) throw std::runtime_error("updates of a use that there is not");
    reply->updates.push_back({of.use,
                              {of.keys, of.keys + of.n},
                              {of.ticks, of.ticks + of.n},
                              {of.clocks, of.clocks + of.n},
                              {of.updates, of.updates + of.n * row_floats[of.use]}});
  }
  for (uint64_t i = 0; i < from.n_left; ++i) reply->left.emplace_back(from.left_uses[i], from.left_keys[i]);
  std::sort(reply->left.begin(), reply->left.end());
  std::sort(reply->updates.begin(), reply->updates.end(),
            [](const Updates& a, const Updates& b) { return a.use < b.use; });
}

std::vector<size_t> Side::RowFloatsOf(const Call& call) const {
  std::vector<size_t> floats;
  for (const size_t table : use_tables_[static_cast<size_t>(&call - calls_.data())]) {
    floats.push_back(configs_[table].row_floats);
  }
  return floats;
}

Reply Side::Lookup(size_t number, bool training) {
  Call& call = calls_[number];
  HetDevWanted wanted = {};
  Reply reply = Answered(library_.Lookup(context_, call.call, &call.batch, training, AnyStream(), &wanted));
  if (reply.code == HET_DEV_OK) CopyWanted(wanted, call.uses.size(), &reply);
  return reply;
}

Reply Side::Install(size_t number, const std::vector<Answer>& answers) {
  Call& call = calls_[number];
  std::vector<HetDevAnswer> given;
  size_t floats = 0;
  for (const Answer& answer : answers) floats += answer.rows.size();
  void* staged = nullptr;
  const bool stage = floats % 2 == 0;  // rows may be in any host memory
  if (stage) {
    const int code = library_.Stage(context_, floats * sizeof(float) + 1, &staged);
    if (code != HET_DEV_OK) return Answered(code);
  }
  auto* to = static_cast<float*>(staged);
  for (const Answer& answer : answers) {
    const float* rows = answer.rows.empty() ? nullptr : answer.rows.data();
    if (stage && rows != nullptr) {
      std::copy(answer.rows.begin(), answer.rows.end(), to);
      rows = to;
      to += answer.rows.size();
    }
    given.push_back({answer.use, answer.keys.size(), answer.keys.data(), answer.bases.data(),
                     answer.admit.data(), rows,
                     answer.subscribed.empty() ? nullptr : answer.subscribed.data()});
  }
  HetDevExport victims = {};
  Reply reply = Answered(library_.Install(context_, call.call, &call.batch, given.data(),
                                          static_cast<uint32_t>(given.size()), AnyStream(), &victims));
  if (reply.code == HET_DEV_OK) CopyUpdates(victims, RowFloatsOf(call), &reply);
  return reply;
}

Reply Side::Gather(size_t number) {
  Call& call = calls_[number];
  return Answered(library_.Gather(context_, call.call, &call.batch, AnyStream()));
}

std::vector<float> Side::Rows(size_t number, size_t feature) {
  Call& call = calls_[number];
  std::vector<float> rows(call.features[feature].rows == nullptr ? 0 : call.floats[feature]);
  if (!rows.empty()) {
    Must(library_.CopyOut(context_, rows.data(), call.features[feature].rows, rows.size() * sizeof(float),
                          AnyStream()),
         "CopyOut");
  }
  return rows;
}

Reply Side::Sum(size_t number, float scale, const uint8_t* active) {
  Call& call = calls_[number];
  HetDevWanted wanted = {};
  HetDevSummed summed = {};
  Reply reply =
      Answered(library_.Sum(context_, call.call, &call.batch, scale, active, AnyStream(), &wanted, &summed));
  if (reply.code != HET_DEV_OK) return reply;
  wanted.reads = wanted.hits = nullptr;
  CopyWanted(wanted, 0, &reply);
  if (wanted.n > 0) return reply;
  reply.uniques = summed.uniques;
  reply.due = summed.due;
  reply.overdue = summed.overdue;
  if (summed.ticks != nullptr) reply.ticks.assign(summed.ticks, summed.ticks + call.uses.size());
  if (summed.active != nullptr) reply.active.assign(summed.active, summed.active + call.features.size());
  for (uint8_t& flag : reply.active) flag = flag != 0;
  reply.non_finite = summed.non_finite != 0;
  if (reply.non_finite) {
    reply.bad_use = summed.bad_use;
    reply.bad_key = summed.bad_key;
  }
  return reply;
}

Reply Side::Tick(size_t number) {
  Call& call = calls_[number];
  HetDevExport due = {};
  Reply reply = Answered(library_.Tick(context_, call.call, &call.batch, AnyStream(), &due));
  if (reply.code == HET_DEV_OK && due.n > 0) Must(library_.Collect(context_), "Collect");
  if (reply.code == HET_DEV_OK) CopyUpdates(due, RowFloatsOf(call), &reply);
  return reply;
}

void Side::Reset(size_t number) { library_.ResetCall(context_, calls_[number].call); }

Reply Side::Take(size_t table, uint64_t max_rows) {
  HetDevExport updates = {};
  Reply reply = Answered(library_.Take(context_, tables_[table], max_rows, AnyStream(), &updates));
  if (reply.code == HET_DEV_OK) CopyUpdates(updates, {configs_[table].row_floats}, &reply);
  return reply;
}

Reply Side::Forget(size_t table, int what, const std::vector<uint8_t>* partitions) {
  uint64_t discarded = 0;
  Reply reply = Answered(library_.Forget(context_, tables_[table], what,
                                         partitions == nullptr ? nullptr : partitions->data(), AnyStream(),
                                         &discarded));
  reply.discarded = discarded;
  return reply;
}

Reply Side::ForgetKeys(size_t table, int what, const std::vector<int64_t>& keys) {
  uint64_t discarded = 0;
  Reply reply = Answered(
      library_.ForgetKeys(context_, tables_[table], what, keys.data(), keys.size(), AnyStream(), &discarded));
  reply.discarded = discarded;
  return reply;
}

Reply Side::Inspect(size_t table, int64_t key) {
  Reply reply;
  std::vector<float> value(configs_[table].row_floats), update(value.size());
  HetDevRowState row = {};
  reply = Answered(
      library_.Inspect(context_, tables_[table], key, AnyStream(), &row, value.data(), update.data()));
  if (reply.code != HET_DEV_OK || !row.found) return reply;
  reply.row = row;
  reply.value = std::move(value);
  if (row.ticks > 0) reply.update = std::move(update);
  return reply;
}

Reply Side::State(size_t table) {
  HetDevTableState state = {};
  Reply reply = Answered(library_.State(context_, tables_[table], AnyStream(), &state));
  reply.state = state;
  return reply;
}

}  // namespace het::device_check
