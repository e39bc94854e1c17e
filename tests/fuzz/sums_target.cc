// What an owner of keys does with the gradients that the other workers sent it
// (core/plan/gradient_sums.h).
//
// An input: how many parts, the length of each in two bytes, and the parts.

#include "het_tf/core/plan/gradient_sums.h"
#include "tests/fuzz/target.h"

namespace het::fuzz {
namespace {

constexpr uint64_t kSignature = 7;
constexpr size_t kMaxParts = 4;

SumsLayout Layout() {
  SumsLayout layout;
  layout.dims = {2, 3, 1};
  layout.table_of_feature = {0, 0, 1, 2};
  layout.signature = kSignature;
  return layout;
}

GradientSums Gradients(Key first) {
  GradientSums sums;
  sums.active = {1, 0, 1, 0};
  for (uint32_t dim : Layout().dims) {
    sums.tables.emplace_back();
    GradientSums::OfTable &table = sums.tables.back();
    table.dim = dim;
    for (Key key = first; key < first + 4; ++key) {
      table.keys.push_back(key);
      table.owners.push_back(0);
      table.sums.insert(table.sums.end(), dim, static_cast<float>(key));
    }
    table.idle_keys = {first - 1};
    table.idle_owners = {0};
    table.idle_features = {1};
  }
  return sums;
}

Bytes Input(const std::vector<Bytes> &parts) {
  std::vector<Bytes> input = {{static_cast<uint8_t>(parts.size())}};
  for (const Bytes &part : parts) input.push_back(SizeOf(part));
  input.insert(input.end(), parts.begin(), parts.end());
  return Joined(input);
}

// All that one worker sends, to one owner.
Bytes Part(const Status &error, const GradientSums &sums) {
  Bytes bytes;
  Vector<int32_t> splits;
  if (!PackSums(error, sums, kSignature, 1, &bytes, &splits).ok()) Fail("small sums were refused");
  return bytes;
}

bool Known(Code code) { return code >= Code::kOk && code <= Code::kDataLoss; }

void Check(const SumsLayout &layout, const MergedSums &merged, size_t bytes) {
  if (merged.tables.size() != layout.dims.size()) Fail("tables are missing");
  for (size_t t = 0; t < merged.tables.size(); ++t) {
    const MergedSums::OfTable &table = merged.tables[t];
    if (table.sums.size() != table.keys.size() * layout.dims[t]) Fail("keys without sums");
    if (table.keys.size() > bytes) Fail("more keys than bytes");
  }
}

std::vector<Bytes> Seeds() {
  GradientSums empty;
  empty.active = {0, 0, 0, 0};
  empty.tables.resize(Layout().dims.size());
  const Bytes one = Part(Status(), Gradients(1));
  const Bytes other = Part(Status(), Gradients(-300));
  const Bytes error = Part(Status(Code::kInvalidArgument, "NaN"), GradientSums());
  const Bytes none = Part(Status(), empty);
  Bytes strange = error;
  strange[4] = 99;  // a code that there is not
  return {Input({one}),        Input({one, other}), Input({none, one, none}),
          Input({one, error}), Input({}),           Input({one, strange})};
}

void Run(const uint8_t *data, size_t size) {
  if (size == 0 || data[0] > kMaxParts || size < 1 + 2u * data[0]) return;
  Vector<int32_t> lengths;
  // As signed numbers: what came of an exchange may be anything.
  for (size_t w = 0; w < data[0]; ++w) {
    lengths.push_back(static_cast<int16_t>(data[1 + 2 * w] | data[2 + 2 * w] << 8));
  }
  const Span<const uint8_t> bytes(data + 1 + 2 * lengths.size(), size - 1 - 2 * lengths.size());
  const SumsLayout layout = Layout();
  const Span<const int32_t> of_workers(lengths.data(), lengths.size());
  MergedSums merged;
  Status status;
  Within(Allowance(size), "merging", [&] { status = MergeSums(layout, bytes, of_workers, &merged); });
  if (!Known(status.code())) Fail("an error of a kind that there is not");
  if (status.ok()) {
    Check(layout, merged, bytes.size());
  } else if (status.message().empty()) {
    Fail("an error without words");
  }
}

const bool registered = Register({"sums", Run, Seeds});

}  // namespace
}  // namespace het::fuzz
