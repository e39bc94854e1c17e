// The ops: what they take, what they give, and the shapes of it.
#include "het_tf/ops/op_definition.h"

namespace het {
namespace {

// rows[f] has the shape of ids[f] and then dim. A shape function of the C API cannot read attributes, so dim
// comes as the shape of a constant: the input `hint` is [0, dim].
void SetRowsShape(TF_ShapeInferenceContext* context, int f, int hint_input, TF_Status* status) {
  const Shape ids(TF_NewShapeHandle()), hint(TF_NewShapeHandle()), matrix(TF_NewShapeHandle()),
      dim(TF_NewShapeHandle()), rows(TF_NewShapeHandle());
  TF_ShapeInferenceContextGetInput(context, f, ids.get(), status);
  if (!Ok(status)) return;
  TF_ShapeInferenceContextGetInput(context, hint_input, hint.get(), status);
  if (!Ok(status)) return;
  TF_ShapeInferenceContextWithRank(context, hint.get(), 2, matrix.get(), status);
  if (!Ok(status)) return;
  TF_ShapeInferenceContextSubshape(context, matrix.get(), 1, 2, dim.get(), status);
  if (!Ok(status)) return;
  TF_ShapeInferenceContextConcatenateShapes(context, ids.get(), dim.get(), rows.get(), status);
  if (!Ok(status)) return;
  TF_ShapeInferenceContextSetOutput(context, f, rows.get(), status);
}

void LookupShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  const int n = static_cast<int>((TF_ShapeInferenceContextNumInputs(context) - 1) / 2);
  for (int f = 0; f < n; ++f) {
    SetRowsShape(context, f, n + 1 + f, status);
    if (!Ok(status)) return;
  }
  const Shape scalar(TF_ShapeInferenceContextScalar(context));
  TF_ShapeInferenceContextSetOutput(context, n, scalar.get(), status);
}

// The same for HetServe: N ids, N hints, path, perhaps a ticket; N rows.
void ServeShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  const int n = static_cast<int>((TF_ShapeInferenceContextNumInputs(context) - 1) / 2);
  for (int f = 0; f < n && Ok(status); ++f) SetRowsShape(context, f, n + f, status);
}

void ScalarShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  const Shape scalar(TF_ShapeInferenceContextScalar(context));
  TF_ShapeInferenceContextSetOutput(context, 0, scalar.get(), status);
}

void SumGradsShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  const Shape vector(TF_ShapeInferenceContextVectorFromSize(context, -1));
  TF_ShapeInferenceContextSetOutput(context, 0, vector.get(), status);
  if (Ok(status)) TF_ShapeInferenceContextSetOutput(context, 1, vector.get(), status);
  if (Ok(status)) TF_ShapeInferenceContextSetOutput(context, 2, vector.get(), status);
}

void NoShape(TF_ShapeInferenceContext*, TF_Status*) {}

// The rows of `ids`. With `training` the step is remembered and `token` stands for it: HetKeepGrad, which is
// the gradient of this op, takes it. `anchor` has the values of the variables that stand for the tables, one
// after the other (python/layer/variable.py); only its gradient is used.
void RegisterLookup() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetLookup");
  TF_OpDefinitionBuilderAddInput(op, "ids: N * int64");
  TF_OpDefinitionBuilderAddInput(op, "anchor: float");
  TF_OpDefinitionBuilderAddInput(op, "hints: N * float");
  TF_OpDefinitionBuilderAddOutput(op, "rows: N * float");
  TF_OpDefinitionBuilderAddOutput(op, "token: int64");
  TF_OpDefinitionBuilderAddAttr(op, "N: int >= 1");
  TF_OpDefinitionBuilderAddAttr(op, "tables: list(string)");  // of each feature
  TF_OpDefinitionBuilderAddAttr(op, "specs: string");         // core/engine/call_spec.h
  TF_OpDefinitionBuilderAddAttr(op, "training: bool");
  Register(op, &LookupShape);
}

// A training lookup of these ids will come (core/engine/steps.h, Plan). No outputs. Where rows travel on
// demand (ext/window/cc/global_step.h): `all` has the ids that all workers look up in that step, worker after
// worker, and `ends` where those of each worker end, for each feature; else they are empty. `place`: of the
// step in the stream, else 0.
void RegisterPlan() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetPlan");
  TF_OpDefinitionBuilderAddInput(op, "ids: N * int64");
  TF_OpDefinitionBuilderAddInput(op, "all: M * int64");
  TF_OpDefinitionBuilderAddInput(op, "ends: M * int64");
  TF_OpDefinitionBuilderAddInput(op, "place: int64");
  TF_OpDefinitionBuilderAddAttr(op, "N: int >= 1");
  TF_OpDefinitionBuilderAddAttr(op, "tables: list(string)");
  TF_OpDefinitionBuilderAddAttr(op, "specs: string");
  TF_OpDefinitionBuilderAddAttr(op, "window: int >= 1");
  TF_OpDefinitionBuilderAddAttr(op, "M: int >= 0");           // N, or 0
  TF_OpDefinitionBuilderAddAttr(op, "worker: int = 0");       // this one
  TF_OpDefinitionBuilderAddAttr(op, "summed: bool = false");  // gradients are summed over the workers
  Register(op, &NoShape);
}

// The pass of a stream whose rows travel on demand has no step behind the one at `place`. No outputs.
void RegisterEndPass() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetEndPass");
  TF_OpDefinitionBuilderAddInput(op, "place: int64");
  TF_OpDefinitionBuilderAddAttr(op, "tables: list(string)");
  TF_OpDefinitionBuilderAddAttr(op, "specs: string");
  Register(op, &NoShape);
}

// Keeps the gradients of the rows that `token` stands for, summed per key, and gives their tickets: one
// matrix [KeptGradients::kSlots, 2] for each variable (core/engine/kept_gradients.h). Changes no row. `norm`:
// of gradients in device memory; ignored for others.
void RegisterKeepGrad() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetKeepGrad");
  TF_OpDefinitionBuilderAddInput(op, "ids: N * int64");
  TF_OpDefinitionBuilderAddInput(op, "grads: N * float");
  TF_OpDefinitionBuilderAddInput(op, "token: int64");
  TF_OpDefinitionBuilderAddInput(op, "norm: float");
  TF_OpDefinitionBuilderAddOutput(op, "tickets: float");
  TF_OpDefinitionBuilderAddAttr(op, "N: int >= 1");
  TF_OpDefinitionBuilderAddAttr(op, "tables: list(string)");
  TF_OpDefinitionBuilderAddAttr(op, "specs: string");
  TF_OpDefinitionBuilderAddAttr(op, "worker: int = 0");  // this one's rank
  Register(op, &UnknownShape);                           // Python sets it
}

// Applies the kept gradients of one variable that `tickets` choose, each times its factor and `scale`: one
// tick of every row. `tables` and `specs` are those of the variable, with one feature a table.
void RegisterApplyGrad() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetApplyGrad");
  TF_OpDefinitionBuilderAddInput(op, "tickets: float");
  TF_OpDefinitionBuilderAddInput(op, "learning_rates: float");  // of each table of specs
  TF_OpDefinitionBuilderAddInput(op, "scale: float");
  TF_OpDefinitionBuilderAddOutput(op, "done: float");  // 0
  TF_OpDefinitionBuilderAddAttr(op, "tables: list(string)");
  TF_OpDefinitionBuilderAddAttr(op, "specs: string");
  Register(op, &ScalarShape);
}

// HetApplyGrad in two halves, for workers that sum their gradients before one of them updates the row
// (core/plan/gradient_sums.h). `payload` has a part for each of `workers` workers, of splits[w] bytes. An
// error of the first half travels in it: HetApplySums raises it, at all workers.
void RegisterSumGrads() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetSumGrads");
  TF_OpDefinitionBuilderAddInput(op, "tickets: float");
  TF_OpDefinitionBuilderAddInput(op, "scale: float");
  TF_OpDefinitionBuilderAddInput(op, "workers: int32");
  TF_OpDefinitionBuilderAddOutput(op, "payload: uint8");
  TF_OpDefinitionBuilderAddOutput(op, "splits: int32");
  TF_OpDefinitionBuilderAddOutput(op, "layout: int64");  // of the sums, for the second half
  TF_OpDefinitionBuilderAddAttr(op, "tables: list(string)");
  TF_OpDefinitionBuilderAddAttr(op, "specs: string");
  Register(op, &SumGradsShape);
}

// The second half: `received` has the parts that all workers made for this one, `lengths` their lengths.
void RegisterApplySums() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetApplySums");
  TF_OpDefinitionBuilderAddInput(op, "received: uint8");
  TF_OpDefinitionBuilderAddInput(op, "lengths: int32");
  TF_OpDefinitionBuilderAddInput(op, "learning_rates: float");
  TF_OpDefinitionBuilderAddInput(op, "layout: int64");
  TF_OpDefinitionBuilderAddOutput(op, "done: float");
  TF_OpDefinitionBuilderAddAttr(op, "tables: list(string)");
  TF_OpDefinitionBuilderAddAttr(op, "specs: string");
  Register(op, &ScalarShape);
}

// How many HetApplyGrad have changed each table of specs: the step of a learning-rate schedule.
void RegisterApplyCount() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetApplyCount");
  TF_OpDefinitionBuilderAddOutput(op, "counts: int64");
  TF_OpDefinitionBuilderAddAttr(op, "tables: list(string)");
  TF_OpDefinitionBuilderAddAttr(op, "specs: string");
  Register(op, &UnknownShape);
}

// The dense weights in force of a model that follows training (ext/serving/cc/follow/followed_model.h), in
// place in their file. `ticket`: their version's number. A lookup takes it as an input, so that the request's
// rows are read after its dense weights.
void RegisterFollowDense() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetFollowDense");
  TF_OpDefinitionBuilderAddInput(op, "path: string");  // of follow.json, as the asset gives it
  TF_OpDefinitionBuilderAddOutput(op, "dense: dtypes");
  TF_OpDefinitionBuilderAddOutput(op, "ticket: int64");
  TF_OpDefinitionBuilderAddAttr(op, "dtypes: list(type) >= 0");
  TF_OpDefinitionBuilderAddAttr(op, "weights: string");  // JSON: [[name, shape, dtype], ...]
  Register(op, &UnknownShape);                           // Python sets the shapes
}

// The rows of `ids` of a native export (ext/serving/cc/follow/followed_model.h). Stateful like the others:
// what a path leads to is no constant of the graph, so nobody may compute the op before it is served.
void RegisterServe() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetServe");
  TF_OpDefinitionBuilderAddInput(op, "ids: N * int64");
  TF_OpDefinitionBuilderAddInput(op, "hints: N * float");
  TF_OpDefinitionBuilderAddInput(op, "path: string");       // of follow.json, as the asset gives it
  TF_OpDefinitionBuilderAddInput(op, "ticket: M * int64");  // one, or none: dense weights do not follow
  TF_OpDefinitionBuilderAddOutput(op, "rows: N * float");
  TF_OpDefinitionBuilderAddAttr(op, "N: int >= 1");
  TF_OpDefinitionBuilderAddAttr(op, "M: int >= 0");
  TF_OpDefinitionBuilderAddAttr(op, "files: list(string)");  // of each feature: as follow.json names its rows
  Register(op, &ServeShape);
}

// The workers that take the samples of a global batch (ext/placement/cc/location.h), keys [workers * batch,
// width] of which are hashes of table and id. slots: what the batches before it in its pass have left, number
// of them.
void RegisterPlaceSamples() {
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("HetPlaceSamples");
  TF_OpDefinitionBuilderAddInput(op, "keys: uint64");
  TF_OpDefinitionBuilderAddInput(op, "slots: uint32");
  TF_OpDefinitionBuilderAddInput(op, "number: int64");
  TF_OpDefinitionBuilderAddOutput(op, "owners: int64");
  TF_OpDefinitionBuilderAddOutput(op, "next_slots: uint32");
  TF_OpDefinitionBuilderAddAttr(op, "workers: int >= 1");
  TF_OpDefinitionBuilderAddAttr(op, "batch: int >= 1");
  Register(op, &UnknownShape);  // one a sample, and as many as came: Python knows
}

const bool registered = (RegisterLookup(), RegisterPlan(), RegisterEndPass(), RegisterKeepGrad(),
                         RegisterApplyGrad(), RegisterSumGrads(), RegisterApplySums(), RegisterApplyCount(),
                         RegisterServe(), RegisterFollowDense(), RegisterPlaceSamples(), true);

}  // namespace
}  // namespace het
