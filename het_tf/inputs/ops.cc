// The ops of graphs: inputs, outputs, and their shapes.
#include "het_tf/ops/op_definition.h"

namespace het {
namespace {

void VectorShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  const Shape vector(TF_ShapeInferenceContextVectorFromSize(context, -1));
  TF_ShapeInferenceContextSetOutput(context, 0, vector.get(), status);
}

const bool registered = Register({
    // Draws neighbours of `nodes` in the graph at `path`, hop after hop (inputs/graph/neighbour_sampler.h).
    // draws [draws, 3]: hop, type (-1: any), count. A pure function of the file and the inputs. Shapes:
    // [batch, draws] for each hop: Python knows the draws.
    {"HetSampleNeighbours",
     {"path: string", "nodes: int64", "draws: int64", "seed: int64", "batch: int64"},
     {"hops: H * int64"},
     {"H: int >= 1"},
     &UnknownShape},
    // Draws `count` nodes of the graph at `path`, by degree^0.75 or uniformly.
    {"HetSampleNodes",
     {"path: string", "count: int64", "seed: int64", "batch: int64"},
     {"nodes: int64"},
     {"uniform: bool"},
     &VectorShape},
});

}  // namespace
}  // namespace het
