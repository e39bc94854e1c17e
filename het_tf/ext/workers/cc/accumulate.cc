#include "het_tf/ext/workers/cc/accumulate.h"

#include "het_tf/core/base/memory_edge.h"
#include "het_tf/core/plan/gradient_sums.h"

namespace het {
namespace {

// A rank's sums, packed for each rank.
struct Packed {
  CallSpec::Resolved resolved;
  SumsLayout layout;
  Bytes bytes;
  Vector<int32_t> splits;  // bytes for each rank
};

Status Sum(CallSpec* spec, const KeptCall& given, uint32_t ranks, Packed* packed) {
  HET_ASSIGN_OR_RETURN(packed->resolved, spec->Resolve());
  KeptCall kept = given;
  kept.variable = spec->variables()[0];
  kept.tables = *packed->resolved.tables;
  GradientSums sums;
  HET_RETURN_IF_ERROR(packed->resolved.engine->steps().SumKept(kept, ranks, &sums, &packed->layout));
  return PackSums(Status(), sums, packed->layout.signature, ranks, &packed->bytes, &packed->splits);
}

// Adds the parts of all ranks up.
Status ExchangeSums(Mesh* mesh, const std::string& label, const Packed& mine, MergedSums* sums) {
  std::vector<Span<const uint8_t>> parts;
  const uint8_t* at = mine.bytes.data();
  for (const int32_t size : mine.splits) {
    parts.emplace_back(at, static_cast<size_t>(size));
    at += size;
  }
  std::vector<Bytes> received;
  HET_RETURN_IF_ERROR(mesh->Exchange(label, "sums", parts, &received));
  received[mesh->rank()].assign(parts[mesh->rank()].begin(), parts[mesh->rank()].end());
  Bytes bytes;
  Vector<int32_t> lengths;
  for (const Bytes& one : received) {
    bytes.insert(bytes.end(), one.begin(), one.end());
    lengths.push_back(static_cast<int32_t>(one.size()));
  }
  return MergeSums(mine.layout, {bytes.data(), bytes.size()}, {lengths.data(), lengths.size()}, sums);
}

}  // namespace

Status Accumulate(Mesh* mesh, const std::string& label, CallSpec* spec, Span<const float> tickets,
                  Span<const float> rates, float scale) {
  KeptCall given;
  given.tickets = tickets;
  given.learning_rates = rates;
  given.scale = scale;
  Packed mine;
  const Status error = AtMemoryEdge([&] { return Sum(spec, given, mesh->size(), &mine); });
  if (!error.ok()) {  // the others wait for this rank's part, so it carries the error
    mine.bytes.clear();
    mine.splits.clear();
    static_cast<void>(
        PackSums(error, GradientSums(), mine.layout.signature, mesh->size(), &mine.bytes, &mine.splits));
  }
  MergedSums sums;
  HET_RETURN_IF_ERROR(ExchangeSums(mesh, label, mine, &sums));
  return mine.resolved.engine->steps().ApplySums(*mine.resolved.tables, mine.layout.layer, sums, rates);
}

}  // namespace het
