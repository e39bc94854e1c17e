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

void NoShape(TF_ShapeInferenceContext*, TF_Status*) {}

const bool registered = Register({
    // The rows of `ids`. With `training` the step is remembered and `token` stands for it: HetKeepGrad, which
    // is the gradient of this op, takes it. `anchor` has the values of the variables that stand for the
    // tables, one after the other (python/layer/variable.py); only its gradient is used. `tables`: of each
    // feature. `specs`: core/engine/call_spec.h.
    {"HetLookup",
     {"ids: N * int64", "anchor: float", "hints: N * float"},
     {"rows: N * float", "token: int64"},
     {"N: int >= 1", "tables: list(string)", "specs: string", "training: bool"},
     &LookupShape},
    // A training lookup of these ids will come (core/engine/steps.h, Plan). No outputs. Where rows travel on
    // demand (ext/streams/cc/global_step.h): `all` has the ids that all workers look up in that step, worker
    // after worker, and `ends` where those of each worker end, for each feature; else they are empty.
    // `place`: of the step in the stream, else 0. `M`: N, or 0. `worker`: this one. `summed`: gradients are
    // summed over the workers.
    {"HetPlan",
     {"ids: N * int64", "all: M * int64", "ends: M * int64", "place: int64"},
     {},
     {"N: int >= 1", "tables: list(string)", "specs: string", "window: int >= 1", "M: int >= 0",
      "worker: int = 0", "summed: bool = false"},
     &NoShape},
    // The pass of a stream whose rows travel on demand has no step behind the one at `place`. No outputs.
    {"HetEndPass", {"place: int64"}, {}, {"tables: list(string)", "specs: string"}, &NoShape},
    // Keeps the gradients of the rows that `token` stands for, summed per key, and gives their tickets: one
    // matrix [KeptGradients::kSlots, 2] for each variable (core/engine/kept_gradients.h). Changes no row.
    // `norm`: of gradients in device memory; ignored for others. `worker`: this one's rank. Python sets the
    // shape.
    {"HetKeepGrad",
     {"ids: N * int64", "grads: N * float", "token: int64", "norm: float"},
     {"tickets: float"},
     {"N: int >= 1", "tables: list(string)", "specs: string", "worker: int = 0"},
     &UnknownShape},
    // Applies the kept gradients of one variable that `tickets` choose, each times its factor and `scale`:
    // one tick of every row. `tables` and `specs` are those of the variable, with one feature a table.
    // `learning_rates`: of each table of specs. `done`: 0.
    {"HetApplyGrad",
     {"tickets: float", "learning_rates: float", "scale: float"},
     {"done: float"},
     {"tables: list(string)", "specs: string"},
     &ScalarShape},
    // How many HetApplyGrad have changed each table of specs: the step of a learning-rate schedule.
    {"HetApplyCount", {}, {"counts: int64"}, {"tables: list(string)", "specs: string"}, &UnknownShape},
    // The dense weights in force of a model that follows training (ext/serving/cc/follow/followed_model.h),
    // in place in their file. `ticket`: their version's number. A lookup takes it as an input, so that the
    // request's rows are read after its dense weights. `path`: of follow.json, as the asset gives it.
    // `weights`: [[name, shape, dtype], ...] in JSON. Python sets the shapes.
    {"HetFollowDense",
     {"path: string"},
     {"dense: dtypes", "ticket: int64"},
     {"dtypes: list(type) >= 0", "weights: string"},
     &UnknownShape},
    // The rows of `ids` of a native export (ext/serving/cc/follow/followed_model.h). Stateful like the
    // others: what a path leads to is no constant of the graph, so nobody may compute the op before it is
    // served. `path`: of follow.json, as the asset gives it. `ticket`: one, or none: dense weights do not
    // follow. `files`: of each feature, as follow.json names its rows.
    {"HetServe",
     {"ids: N * int64", "hints: N * float", "path: string", "ticket: M * int64"},
     {"rows: N * float"},
     {"N: int >= 1", "M: int >= 0", "files: list(string)"},
     &ServeShape},
    // The workers that take the samples of a global batch (ext/streams/cc/location.h), keys [workers *
    // batch, width] of which are hashes of table and id. slots: what the batches before it in its pass have
    // left, number of them. There is an owner for each sample: Python sets the shape.
    {"HetPlaceSamples",
     {"keys: uint64", "slots: uint32", "number: int64"},
     {"owners: int64", "next_slots: uint32"},
     {"workers: int >= 1", "batch: int >= 1"},
     &UnknownShape},
});

}  // namespace
}  // namespace het
