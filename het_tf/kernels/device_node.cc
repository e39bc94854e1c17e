#include "het_tf/kernels/device_node.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "het_tf/core/base/answer.h"
#include "het_tf/core/device/device_copies.h"
#include "het_tf/core/engine/call_spec.h"
#include "het_tf/kernels/online_tables.h"

struct HetNode {
  std::unique_ptr<het::CallSpec> spec;
  std::unique_ptr<het::OnlineTables> online;  // null: the tables are this process's own
};

namespace het {
namespace {

// One call's features, with the given pointers to ids and rows, on the device.
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

bool OnDevice(const std::vector<TablePtr>& tables) {
  return std::any_of(tables.begin(), tables.end(),
                     [](const TablePtr& table) { return table->options.on_device(); });
}

// Host copies of ids, and rows or gradients, for a call whose tables are not on the device.
class OnHost {
 public:
  static Result<OnHost> Create(const HetNode& node, const std::vector<FeatureIds>& there,
                               HetDevStream stream) {
    HET_ASSIGN_OR_RETURN(auto copies, DeviceCopies::Get());
    OnHost host(copies, stream);
    for (const FeatureIds& feature : there) {
      host.ids_.emplace_back(feature.ids.size());
      HET_RETURN_IF_ERROR(
          copies->Out(host.ids_.back().data(), feature.ids.data(), feature.ids.size() * sizeof(Key), stream));
      host.floats_.emplace_back(feature.ids.size() * node.spec->schemas()[feature.table]->dim());
      host.features.push_back({feature.table,
                               Span<const int64_t>(host.ids_.back().data(), feature.ids.size()),
                               feature.padding_id});
      host.floats.push_back(host.floats_.back().data());
    }
    return host;
  }

  Status FloatsOut(float* const* to) const {
    for (size_t f = 0; f < floats.size(); ++f) {
      HET_RETURN_IF_ERROR(copies_->In(to[f], floats[f], floats_[f].size() * sizeof(float), stream_));
    }
    return Status();
  }
  Status FloatsIn(const float* const* from) {
    for (size_t f = 0; f < floats.size(); ++f) {
      HET_RETURN_IF_ERROR(copies_->Out(floats[f], from[f], floats_[f].size() * sizeof(float), stream_));
    }
    return Status();
  }

  std::vector<FeatureIds> features;
  std::vector<float*> floats;

 private:
  OnHost(DeviceCopies* copies, HetDevStream stream) : copies_(copies), stream_(stream) {}

  DeviceCopies* copies_;
  HetDevStream stream_;
  std::vector<std::vector<int64_t>> ids_;
  std::vector<std::vector<float>> floats_;
};

Status DeviceLookup(HetNode* node, const std::vector<FeatureIds>& features, float* const* rows, bool training,
                    void* stream, uint64_t* token) {
  const Span<float* const> out(rows, features.size());
  if (node->online != nullptr) {
    if (training) {
      return InvalidArgument("specs has 'online', and training is true; a serving process never trains");
    }
    HET_ASSIGN_OR_RETURN(auto online, node->online->Resolve());
    HET_ASSIGN_OR_RETURN(auto host, OnHost::Create(*node, features, stream));
    HET_RETURN_IF_ERROR(online.Lookup(host.features, host.floats));
    return host.FloatsOut(rows);
  }
  HET_ASSIGN_OR_RETURN(auto resolved, node->spec->Resolve());
  Steps& steps = resolved.engine->steps();
  const std::vector<TablePtr>& tables = *resolved.tables;
  if (OnDevice(tables)) {
    return steps.Lookup({tables, features, node->spec->signature(), {true, stream}}, out,
                        training ? token : nullptr);
  }
  HET_ASSIGN_OR_RETURN(auto host, OnHost::Create(*node, features, stream));
  HET_RETURN_IF_ERROR(CheckIds(*node->spec, host.features));
  HET_RETURN_IF_ERROR(steps.Lookup({tables, host.features, node->spec->signature()}, host.floats,
                                   training ? token : nullptr));
  return host.FloatsOut(rows);
}

Status DeviceKeep(HetNode* node, const std::vector<FeatureIds>& features, const float* const* gradients,
                  ApplyArgs args, float norm, uint32_t worker, std::shared_ptr<void> memory, void* stream,
                  std::vector<KeptGradients::Given>* given) {
  HET_ASSIGN_OR_RETURN(auto resolved, node->spec->Resolve());
  Steps& steps = resolved.engine->steps();
  const std::vector<TablePtr>& tables = *resolved.tables;
  const std::vector<uint64_t>& variables = node->spec->variables();
  if (OnDevice(tables)) {
    auto device = std::make_shared<DeviceGradient>();
    device->features = features;
    device->gradients.assign(gradients, gradients + features.size());
    device->norm = norm;
    device->memory = std::move(memory);
    device->stream = stream;
    return steps.Keep({tables, features, node->spec->signature(), {true, stream}}, args, variables, worker,
                      std::move(device), given);
  }
  HET_ASSIGN_OR_RETURN(auto host, OnHost::Create(*node, features, stream));
  HET_RETURN_IF_ERROR(host.FloatsIn(gradients));
  const std::vector<const float*> here(host.floats.begin(), host.floats.end());
  args.gradients = here;
  return steps.Keep({tables, host.features, node->spec->signature()}, args, variables, worker, nullptr,
                    given);
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
    auto made = std::make_unique<HetNode>();
    made->spec = std::move(spec);
    if (!made->spec->online().empty()) {
      HET_ASSIGN_OR_RETURN(made->online, het::OnlineTables::Create(*made->spec));
    }
    *node = made.release();
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
    uint64_t given = 0;
    HET_RETURN_IF_ERROR(het::DeviceLookup(node, there, rows, training != 0, stream, &given));
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
    het::ApplyArgs args;
    args.token = static_cast<uint64_t>(token);
    std::vector<het::KeptGradients::Given> given;
    HET_RETURN_IF_ERROR(het::DeviceKeep(node, there, gradients, args, norm, worker, owner, stream, &given));
    het::WriteTickets({given.data(), given.size()}, tickets);
    return Status();
  });
}

int HetDeviceApply(HetNode* node, const float* tickets, size_t floats, const float* learning_rates,
                   size_t rates, float scale) {
  return Answer([&]() -> Status {
    if (floats != het::KeptGradients::kSlots * 2) {
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
