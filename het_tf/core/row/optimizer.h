// Sparse optimizers, and the algebra of their updates.
//
// A row is `[value: dim floats | slots]`. A worker runs the optimizer on its own copy of the row, once for
// each key and HetApplyGrad (a *tick*), with the summed gradient of the key. It sends the server no gradient
// but an *update* U = (p, dv, a): p ticks, the change of the value, and one term for each slot, laid out like
// a row: `[dv | a]`. Each slot merges by its own recurrence, so updates compose and one worker is exact:
//
//   merge      applying U to a row          composition U2 after U1 (p2 ticks in U2)
//   kAdd       s <- s + a                    a <- a1 + a2
//   kEma       s <- beta^p s + a             a <- beta^p2 a1 + a2
//   kLast      s <- a, unless a is 0         a <- a2, unless a2 is 0
//
// Zeros are the identity of every rule; that is why 0 means "none" to kLast.
//
// The value always merges by addition, unless it is a function of the slots (value_is_derived(): FTRL); then
// dv stays zero and is not sent.
//
// Each optimizer is one small file in optimizers/: its formula, with the source, and its slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "het_tf/core/base/status.h"

namespace het {

enum class Merge : uint8_t { kAdd, kEma, kLast };

struct SlotSpec {
  std::string name;  // the field's term: "accumulator", "momentum", ...
  bool per_element;  // dim floats, or else one float a row
  Merge merge;
  float beta;     // kEma only
  float initial;  // value in a row without updates
};

// An optimizer's name and hyper-parameters, as written in a table's spec.
struct OptimizerSpec {
  std::string name = "row_wise_adagrad";
  std::map<std::string, double> params;  // without the learning rate, an argument of every tick
};

class Optimizer {
 public:
  // InvalidArgument: an unknown name or parameter, or a value out of range; lists the legal ones.
  static Result<std::unique_ptr<Optimizer>> Create(const OptimizerSpec& spec, size_t dim);
  static std::vector<std::string> Names();
  // Returns all hyper-parameters of a legal spec, with defaults for those that it omits.
  static std::map<std::string, double> AllParams(const OptimizerSpec& spec);

  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  size_t dim() const { return dim_; }
  // Floats in a row, and equally in an update.
  size_t row_floats() const { return row_floats_; }
  const std::vector<SlotSpec>& slots() const { return slots_; }
  size_t slot_floats(size_t slot) const { return slots_[slot].per_element ? dim_ : 1; }
  virtual bool value_is_derived() const { return false; }
  // Whether a tick depends on the row's age, and so its slots alone do not continue a training.
  virtual bool uses_age() const { return false; }
  // T, if a row's n-th step is about its first one / sqrt(1 + n / T), as AdaGrad's is with T = 1; infinity:
  // steps do not shrink. Where they do an old row may be staler (cache/staleness.h).
  virtual double decay_steps() const { return std::numeric_limits<double>::infinity(); }
  // The first float of an update that is sent: dim if the value is derived, else 0.
  size_t wire_begin() const { return value_is_derived() ? dim_ : 0; }
  size_t wire_floats() const { return row_floats_ - wire_begin(); }

  // Initialises the slots of a row, but not its value.
  void InitSlots(float* row) const;

  // One tick: row <- row after a step with the summed gradient g[dim]. `age`: the ticks that the row has had.
  // If `update` is not null, the tick is also composed onto it: update <- U(tick) ∘ update.
  virtual void Apply(float learning_rate, const float* g, float age, float* row, float* update) const = 0;

  // row <- U(row), U = (ticks, update). A derived value is recomputed, so merging the identity with 0 ticks
  // into a row of slots and the initializer's value completes it.
  void MergeInto(const float* update, uint32_t ticks, float* row) const;
  // The same from the part that is sent: wire_floats() floats.
  void MergeWire(const float* wire, uint32_t ticks, float* row) const;

 protected:
  Optimizer(size_t dim, std::vector<SlotSpec> slots);
  // Recomputes the value from the slots after a merge; only where value_is_derived().
  virtual void DeriveValue(float* row) const;

 private:
  size_t dim_;
  std::vector<SlotSpec> slots_;
  size_t row_floats_;
};

}  // namespace het
