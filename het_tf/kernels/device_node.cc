#include "het_tf/kernels/device_node.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "het_tf/core/base/answer.h"
#include "het_tf/core/engine/call_spec.h"

struct HetNode {
  std::unique_ptr<het::CallSpec> spec;
};

namespace het {
namespace {

// One call's features, with the given pointers to ids.
Result<std::vector<FeatureIds>> FeaturesOf(const HetNode& node, const int64_t* const* ids,
                                           const int64_t* counts, size_t features) {
  const std::vector<CallSpec::Feature>& wanted = node.spec->features();
  if (features != wanted.size()) {
    return InvalidArgument("there are ids of " + std::to_string(features) + " features, and the node has " +
                           std::to_string(wanted.size()));
  }
  std::vector<FeatureIds> given;
  for (size_t f = 0; f < features; ++f) {
    if (counts[f] < 0) {
      return InvalidArgument("feature " + std::to_string(f) + " has " + std::to_string(counts[f]) + " ids");
    }
    given.push_back(
        {wanted[f].table, Span<const int64_t>(ids[f], static_cast<size_t>(counts[f])), wanted[f].padding_id});
  }
  return given;
}

}  // namespace
}  // namespace het

using het::Answer;
using het::Span;
using het::Status;

int HetNodeCreate(const char* const* tables, size_t count, const char* specs, HetNode** node) {
  return Answer([&]() -> Status {
    HET_ASSIGN_OR_RETURN(auto spec,
                         het::CallSpec::Create(std::vector<std::string>(tables, tables + count), specs));
    *node = new HetNode{std::move(spec)};
    return Status();
  });
}

void HetNodeDelete(HetNode* node) { delete node; }

int HetNodeDim(const HetNode* node, size_t feature, int64_t* dim) {
  return Answer([&]() -> Status {
    const auto& features = node->spec->features();
    if (feature >= features.size()) {
      return het::InvalidArgument("feature is " + std::to_string(feature) + "; the node has " +
                                  std::to_string(features.size()));
    }
    *dim = node->spec->schemas()[features[feature].table]->dim();
    return Status();
  });
}

int HetDeviceLookup(HetNode* node, const int64_t* const* ids, const int64_t* counts, size_t features,
                    float* const* rows, int training, void* stream, int64_t* token) {
  return Answer([&]() -> Status {
    *token = 0;
    HET_ASSIGN_OR_RETURN(auto there, het::FeaturesOf(*node, ids, counts, features));
    HET_ASSIGN_OR_RETURN(auto resolved, node->spec->Resolve());
    uint64_t given = 0;
    HET_RETURN_IF_ERROR(
        resolved.engine->steps().Lookup({*resolved.tables, there, node->spec->signature(), {true, stream}},
                                        {rows, features}, training != 0 ? &given : nullptr));
    *token = static_cast<int64_t>(given);
    return Status();
  });
}

int HetNodeTickets(const HetNode* node, size_t* floats) {
  const std::vector<uint64_t>& variables = node->spec->variables();
  const std::set<uint64_t> different(variables.begin(), variables.end());
  *floats = different.size() * het::KeptGradients::kSlots * 2;
  return 0;
}

int HetDeviceKeep(HetNode* node, const int64_t* const* ids, const int64_t* counts, size_t features,
                  const float* const* gradients, int64_t token, float norm, uint32_t worker, void* memory,
                  void (*release)(void*), void* stream, float* tickets) {
  const std::shared_ptr<void> owner(memory, release);
  return Answer([&]() -> Status {
    HET_ASSIGN_OR_RETURN(auto there, het::FeaturesOf(*node, ids, counts, features));
    HET_ASSIGN_OR_RETURN(auto resolved, node->spec->Resolve());
    het::ApplyArgs args;
    args.token = static_cast<uint64_t>(token);
    auto device = std::make_shared<het::DeviceGradient>();
    device->features = there;
    device->gradients.assign(gradients, gradients + features);
    device->norm = norm;
    device->memory = owner;
    device->stream = stream;
    std::vector<het::KeptGradients::Given> given;
    HET_RETURN_IF_ERROR(
        resolved.engine->steps().Keep({*resolved.tables, there, node->spec->signature(), {true, stream}},
                                      args, node->spec->variables(), worker, std::move(device), &given));
    het::WriteTickets({given.data(), given.size()}, tickets);
    return Status();
  });
}

int HetDeviceApply(HetNode* node, const float* tickets, size_t floats, const float* learning_rates,
                   size_t rates, float scale) {
  return Answer([&]() -> Status {
    if (floats != size_t{2} * het::KeptGradients::kSlots) {
      return het::InvalidArgument("HetApplyGrad: there are " + std::to_string(floats) +
                                  " numbers of tickets");
    }
    HET_ASSIGN_OR_RETURN(auto resolved, node->spec->Resolve());
    const Span<const float> of_tables(learning_rates, rates);
    HET_RETURN_IF_ERROR(het::CheckLearningRates(*node->spec, of_tables));
    return resolved.engine->steps().ApplyKept(
        {node->spec->variables()[0], *resolved.tables, Span<const float>(tickets, floats), of_tables, scale});
  });
}
