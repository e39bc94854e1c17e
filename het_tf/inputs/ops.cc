// The ops of graphs: inputs, outputs, and their shapes.
#include "het_tf/ops/op_definition.h"

namespace het {
namespace {

void VectorShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  const Shape vector(TF_ShapeInferenceContextVectorFromSize(context, -1));
  TF_ShapeInferenceContextSetOutput(context, 0, vector.get(), status);
}

// Draws neighbours of `nodes` in the graph at `path`, hop after hop (inputs/graph/neighbour_sampler.h). draws
// [draws, 3]: hop, type (-1: any), count. A pure function of the file and the inputs.
void RegisterSampleNeighbours() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetSampleNeighbours");
  TF_OpDefinitionBuilderAddInput(op, "path: string");
  TF_OpDefinitionBuilderAddInput(op, "nodes: int64");
  TF_OpDefinitionBuilderAddInput(op, "draws: int64");
  TF_OpDefinitionBuilderAddInput(op, "seed: int64");
  TF_OpDefinitionBuilderAddInput(op, "batch: int64");
  TF_OpDefinitionBuilderAddOutput(op, "hops: H * int64");
  TF_OpDefinitionBuilderAddAttr(op, "H: int >= 1");
  Register(op, &UnknownShape);  // [batch, draws] for each hop: Python knows the draws
}

// Draws `count` nodes of the graph at `path`, by degree^0.75 or uniformly.
void RegisterSampleNodes() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetSampleNodes");
  TF_OpDefinitionBuilderAddInput(op, "path: string");
  TF_OpDefinitionBuilderAddInput(op, "count: int64");
  TF_OpDefinitionBuilderAddInput(op, "seed: int64");
  TF_OpDefinitionBuilderAddInput(op, "batch: int64");
  TF_OpDefinitionBuilderAddOutput(op, "nodes: int64");
  TF_OpDefinitionBuilderAddAttr(op, "uniform: bool");
  Register(op, &VectorShape);
}

const bool registered = (RegisterSampleNeighbours(), RegisterSampleNodes(), true);

}  // namespace
}  // namespace het
