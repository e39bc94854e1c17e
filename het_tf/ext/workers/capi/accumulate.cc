#include "het_tf/ext/workers/capi/accumulate.h"

#include "het_tf/core/base/answer.h"
#include "het_tf/core/base/interrupt.h"
#include "het_tf/core/base/memory_edge.h"
#include "het_tf/core/engine/call_spec.h"
#include "het_tf/core/plan/gradient_sums.h"
#include "het_tf/ext/workers/cc/mesh.h"

namespace het {
namespace {

// One rank's part of the update of a variable.
class Accumulation {
 public:
  // Sums the rank's gradients, and packs them for each rank. The others wait for them, so they carry an error
  // too.
  Accumulation(CallSpec* spec, const float* tickets, float scale, uint32_t workers) {
    GradientSums sums;
    const Status error = AtMemoryEdge([&]() -> Status {
      HET_ASSIGN_OR_RETURN(resolved_, spec->Resolve());
      KeptCall kept;
      kept.variable = spec->variables()[0];
      kept.tables = *resolved_.tables;
      kept.tickets = {tickets, size_t{2} * KeptGradients::kSlots};
      kept.scale = scale;
      HET_RETURN_IF_ERROR(resolved_.engine->steps().SumKept(kept, workers, &sums, &layout_));
      return PackSums(Status(), sums, layout_.signature, workers, &bytes_, &splits_);
    });
    if (error.ok()) return;
    bytes_.clear();
    splits_.clear();
    static_cast<void>(PackSums(error, GradientSums(), layout_.signature, workers, &bytes_, &splits_));
  }

  // Adds the parts of all ranks up; an error of one is that of all.
  Status Exchange(Mesh* mesh, const std::string& label, MergedSums* sums) const {
    std::vector<Span<const uint8_t>> parts;
    const uint8_t* at = bytes_.data();
    for (const int32_t size : splits_) {
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
    return MergeSums(layout_, {bytes.data(), bytes.size()}, {lengths.data(), lengths.size()}, sums);
  }

  // Updates the rows of this rank.
  Status Apply(const CallSpec& spec, const MergedSums& sums, const float* rates) const {
    const Span<const float> given(rates, resolved_.tables->size());
    HET_RETURN_IF_ERROR(CheckLearningRates(spec, given));
    return resolved_.engine->steps().ApplySums(*resolved_.tables, layout_.layer, sums, given);
  }

 private:
  CallSpec::Resolved resolved_;
  SumsLayout layout_;
  Bytes bytes_;
  Vector<int32_t> splits_;  // bytes for each rank
};

}  // namespace
}  // namespace het

int HetCallAccumulate(void* call, const char* label, const float* tickets, const float* rates, float scale) {
  const het::Interrupts interrupts(het::Interrupts::By::kFunction);
  return het::Answer([&]() -> het::Status {
    HET_ASSIGN_OR_RETURN(const std::shared_ptr<het::Mesh> mesh, het::ConnectedMesh());
    auto* spec = static_cast<het::CallSpec*>(call);
    const het::Accumulation mine(spec, tickets, scale, mesh->size());
    het::MergedSums sums;
    HET_RETURN_IF_ERROR(mine.Exchange(mesh.get(), label, &sums));
    return mine.Apply(*spec, sums, rates);
  });
}
