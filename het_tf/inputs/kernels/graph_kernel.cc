// HetSampleNeighbours and HetSampleNodes: draws from a mapped graph (inputs/graph).
#include <algorithm>
#include <string>
#include <vector>

#include "het_tf/inputs/graph/neighbour_sampler.h"
#include "het_tf/kernels/tf/tf_util.h"

namespace het {
namespace {

constexpr int64_t kMostDraws = int64_t{1} << 40;  // in a hop: more than any memory, and safe from overflow

Result<int64_t> GetInt64(TF_OpKernelContext* context, int index) {
  HET_ASSIGN_OR_RETURN(const TfTensor input, GetInput(context, index));
  return *static_cast<const int64_t*>(TF_TensorData(input.get()));
}

Result<std::shared_ptr<const graph::GraphFile>> OpenGraph(TF_OpKernelContext* context, int index) {
  HET_ASSIGN_OR_RETURN(const TfTensor path, GetInput(context, index));
  HET_ASSIGN_OR_RETURN(const std::string_view name, GetStringScalar(path.get()));
  return graph::GraphFile::Open(std::string(name));
}

Result<graph::DrawKey> GetKey(TF_OpKernelContext* context, int seed_input) {
  HET_ASSIGN_OR_RETURN(const int64_t seed, GetInt64(context, seed_input));
  HET_ASSIGN_OR_RETURN(const int64_t batch, GetInt64(context, seed_input + 1));
  return graph::DrawKey{static_cast<uint64_t>(seed), static_cast<uint64_t>(batch)};
}

class SampleNeighboursKernel {
 public:
  static Result<std::unique_ptr<SampleNeighboursKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<SampleNeighboursKernel>();
    HET_ASSIGN_OR_RETURN(const int32_t hops, GetIntAttr(context, "H"));
    kernel->hops_ = static_cast<size_t>(hops);
    return kernel;
  }

  // Inputs: path, nodes, draws, seed, batch. Outputs: the hops.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(const auto graph, OpenGraph(context, 0));
    HET_ASSIGN_OR_RETURN(const TfTensor nodes, GetInput(context, 1));
    HET_ASSIGN_OR_RETURN(const std::vector<graph::Hop> hops, GetHops(context, 2));
    HET_ASSIGN_OR_RETURN(const graph::DrawKey key, GetKey(context, 3));
    HET_RETURN_IF_ERROR(graph::CheckHops(*graph, {hops.data(), hops.size()}));

    const int64_t batch = TF_TensorElementCount(nodes.get());
    Span<const int64_t> parents(static_cast<const int64_t*>(TF_TensorData(nodes.get())),
                                static_cast<size_t>(batch));
    int64_t width = 1;
    std::vector<TfTensor> outputs;  // each holds the parents of the next hop
    for (size_t h = 0; h < hops.size(); ++h) {
      const auto fanout = static_cast<int64_t>(graph::Width(hops[h]));
      if (fanout > kMostDraws / (width * std::max<int64_t>(batch, 1))) {
        return InvalidArgument("fanouts draws more than 2^40 nodes of a batch; give smaller ones");
      }
      width *= fanout;
      const int64_t shape[] = {batch, width};
      HET_ASSIGN_OR_RETURN(TfTensor output,
                           NewOutput(context, static_cast<int>(h), TF_INT64, {shape, 2}, sizeof(int64_t)));
      auto* children = static_cast<int64_t*>(TF_TensorData(output.get()));
      HET_RETURN_IF_ERROR(
          graph::SampleHop(*graph, key, static_cast<uint32_t>(h), hops[h], parents, children));
      parents = {children, static_cast<size_t>(batch * width)};
      outputs.push_back(std::move(output));
    }
    return Status();
  }

 private:
  // Reads input `index`, int64 [draws, 3]: hop, type (-1: any), count; hops ascend.
  Result<std::vector<graph::Hop>> GetHops(TF_OpKernelContext* context, int index) const {
    HET_ASSIGN_OR_RETURN(const TfTensor input, GetInput(context, index));
    const auto* values = static_cast<const int64_t*>(TF_TensorData(input.get()));
    const int64_t count = TF_TensorElementCount(input.get());
    std::vector<graph::Hop> hops(hops_);
    for (int64_t i = 0; i + 2 < count; i += 3) {
      const int64_t hop = values[i], type = values[i + 1], draws = values[i + 2];
      if (hop < 0 || hop >= static_cast<int64_t>(hops_) || draws < 0 || draws > INT32_MAX || type < -1 ||
          type > 255) {
        return InvalidArgument("fanouts has " + std::to_string(draws) + " draws of type " +
                               std::to_string(type) + " in hop " + std::to_string(hop) + " of " +
                               std::to_string(hops_) + "; give counts of 1 or more and types of 0 to 255");
      }
      hops[static_cast<size_t>(hop)].push_back({static_cast<int32_t>(type), static_cast<uint32_t>(draws)});
    }
    return hops;
  }

  size_t hops_ = 0;
};

class SampleNodesKernel {
 public:
  static Result<std::unique_ptr<SampleNodesKernel>> Create(TF_OpKernelConstruction* context) {
    auto kernel = std::make_unique<SampleNodesKernel>();
    HET_ASSIGN_OR_RETURN(kernel->uniform_, GetBoolAttr(context, "uniform"));
    return kernel;
  }

  // Inputs: path, count, seed, batch. Output: nodes.
  Status Compute(TF_OpKernelContext* context) {
    HET_ASSIGN_OR_RETURN(const auto graph, OpenGraph(context, 0));
    HET_ASSIGN_OR_RETURN(const int64_t count, GetInt64(context, 1));
    HET_ASSIGN_OR_RETURN(const graph::DrawKey key, GetKey(context, 2));
    if (count < 0 || count > kMostDraws) {
      return InvalidArgument("count is " + std::to_string(count) + "; give how many nodes to draw");
    }
    HET_ASSIGN_OR_RETURN(const TfTensor output,
                         NewOutput(context, 0, TF_INT64, {&count, 1}, sizeof(int64_t)));
    graph::SampleNodes(*graph, key, uniform_,
                       {static_cast<int64_t*>(TF_TensorData(output.get())), static_cast<size_t>(count)});
    return Status();
  }

 private:
  bool uniform_ = false;
};

const bool graph_registered = (RegisterCpuKernel<SampleNeighboursKernel>("HetSampleNeighbours"),
                               RegisterCpuKernel<SampleNodesKernel>("HetSampleNodes"), true);

}  // namespace
}  // namespace het
