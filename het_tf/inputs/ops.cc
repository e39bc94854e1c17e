// The readers' ops: inputs, outputs, and their shapes.
#include "het_tf/ops/op_definition.h"

namespace het {
namespace {

void ReadCriteoShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  const Shape text(TF_ShapeInferenceContextVectorFromSize(context, -1));
  TF_ShapeInferenceContextSetOutput(context, 0, text.get(), status);
  const Shape scalar(TF_ShapeInferenceContextScalar(context));
  for (int i = 1; i < 4 && Ok(status); ++i)
    TF_ShapeInferenceContextSetOutput(context, i, scalar.get(), status);
}

// labels [batches, batch], numeric [batches, batch, 13], ids [batches, 26, batch].
void ParseCriteoShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  const Shape any(TF_ShapeInferenceContextVectorFromSize(context, -1)),
      integers(TF_ShapeInferenceContextVectorFromSize(context, 13)),
      categories(TF_ShapeInferenceContextVectorFromSize(context, 26)), labels(TF_NewShapeHandle()),
      numeric(TF_NewShapeHandle()), columns(TF_NewShapeHandle()), ids(TF_NewShapeHandle());
  const auto join = [&](const Shape& first, const Shape& second, const Shape& result) {
    if (!Ok(status)) return;
    TF_ShapeInferenceContextConcatenateShapes(context, first.get(), second.get(), result.get(), status);
  };
  TF_SetStatus(status, TF_OK, "");
  join(any, any, labels);
  join(labels, integers, numeric);
  join(any, categories, columns);
  join(columns, any, ids);
  TF_ShapeHandle* const shapes[] = {labels.get(), numeric.get(), ids.get()};
  for (int i = 0; i < 3 && Ok(status); ++i) TF_ShapeInferenceContextSetOutput(context, i, shapes[i], status);
}

void VectorShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  const Shape vector(TF_ShapeInferenceContextVectorFromSize(context, -1));
  TF_ShapeInferenceContextSetOutput(context, 0, vector.get(), status);
}

// Returns selected lines of a file of Criteo's format: `batches` times `batch` of them, fewer batches or the
// rest near the end (inputs/criteo/line_reader.h). skip: bad lines are left out and counted. selection: first
// tenth, end of the tenths, shard, shards, salt of the parts (inputs/criteo/criteo.h).
void RegisterReadCriteo() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetReadCriteo");
  TF_OpDefinitionBuilderAddInput(op, "path: string");
  TF_OpDefinitionBuilderAddInput(op, "offset: int64");
  TF_OpDefinitionBuilderAddInput(op, "line: int64");
  TF_OpDefinitionBuilderAddInput(op, "selection: int64");
  TF_OpDefinitionBuilderAddOutput(op, "text: uint8");
  TF_OpDefinitionBuilderAddOutput(op, "next_offset: int64");
  TF_OpDefinitionBuilderAddOutput(op, "next_line: int64");
  TF_OpDefinitionBuilderAddOutput(op, "skipped: int64");
  TF_OpDefinitionBuilderAddAttr(op, "batch: int >= 1");
  TF_OpDefinitionBuilderAddAttr(op, "batches: int >= 1");
  TF_OpDefinitionBuilderAddAttr(op, "chunk_bytes: int >= 1");
  TF_OpDefinitionBuilderAddAttr(op, "longest_line: int >= 1");
  TF_OpDefinitionBuilderAddAttr(op, "skip: bool");
  Register(op, &ReadCriteoShape);
}

// Parses the lines into rows (inputs/criteo/criteo.h), in batches, or in one if `batch` does not divide their
// number. salts: of the 26 fields. path: for messages. seed: for shuffling a text's lines.
void RegisterParseCriteo() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetParseCriteo");
  TF_OpDefinitionBuilderAddInput(op, "text: uint8");
  TF_OpDefinitionBuilderAddInput(op, "first_line: int64");
  TF_OpDefinitionBuilderAddInput(op, "selection: int64");
  TF_OpDefinitionBuilderAddInput(op, "salts: uint64");
  TF_OpDefinitionBuilderAddInput(op, "buckets: int64");
  TF_OpDefinitionBuilderAddInput(op, "seed: int64");
  TF_OpDefinitionBuilderAddOutput(op, "labels: float");
  TF_OpDefinitionBuilderAddOutput(op, "numeric: float");
  TF_OpDefinitionBuilderAddOutput(op, "ids: int64");
  TF_OpDefinitionBuilderAddAttr(op, "path: string");
  TF_OpDefinitionBuilderAddAttr(op, "batch: int >= 1");
  TF_OpDefinitionBuilderAddAttr(op, "shuffle: bool");
  Register(op, &ParseCriteoShape);
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

const bool registered =
    (RegisterReadCriteo(), RegisterParseCriteo(), RegisterSampleNeighbours(), RegisterSampleNodes(), true);

}  // namespace
}  // namespace het
