#include "het_tf/kernels/device_node.h"

#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/base/answer.h"
#include "het_tf/core/engine/call_spec.h"

struct HetNode {
  std::unique_ptr<het::CallSpec> spec;
};

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

int64_t HetNodeDim(const HetNode* node, size_t feature) {
  return node->spec->schemas()[node->spec->features()[feature].table]->dim();
}

size_t HetNodeTicketRows(const HetNode* node) { return node->spec->ticket_rows(); }

int HetDeviceLookup(HetNode* node, const int64_t* const* ids, const size_t* counts, float* const* rows,
                    int training, void* stream, int64_t* token) {
  return Answer([&]() -> Status {
    *token = 0;
    const std::vector<het::FeatureIds> features = node->spec->FeaturesOf(ids, counts);
    HET_ASSIGN_OR_RETURN(auto resolved, node->spec->Resolve());
    uint64_t given = 0;
    HET_RETURN_IF_ERROR(
        resolved.engine->steps().Lookup({*resolved.tables, features, node->spec->signature(), {true, stream}},
                                        {rows, features.size()}, training != 0 ? &given : nullptr));
    *token = static_cast<int64_t>(given);
    return Status();
  });
}

int HetDeviceKeep(HetNode* node, const int64_t* const* ids, const size_t* counts,
                  const float* const* gradients, int64_t token, float norm, uint32_t worker, void* memory,
                  void (*release)(void*), void* stream, float* tickets) {
  const std::shared_ptr<void> owner(memory, release);
  return Answer([&]() -> Status {
    const std::vector<het::FeatureIds> features = node->spec->FeaturesOf(ids, counts);
    HET_ASSIGN_OR_RETURN(auto resolved, node->spec->Resolve());
    het::ApplyArgs args;
    args.token = static_cast<uint64_t>(token);
    auto device = std::make_shared<het::DeviceGradient>();
    device->features = features;
    device->gradients.assign(gradients, gradients + features.size());
    device->norm = norm;
    device->memory = owner;
    device->stream = stream;
    return resolved.engine->steps().Keep(
        {*resolved.tables, features, node->spec->signature(), {true, stream}}, args, node->spec->variables(),
        worker, std::move(device), tickets);
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
    return resolved.engine->steps().ApplyKept(
        {node->spec->variables()[0], *resolved.tables, Span<const float>(tickets, floats), of_tables, scale});
  });
}
