// The definition of a table, and the operations on one of its rows. Immutable and shared by all partitions,
// caches and workers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/row/initializer.h"
#include "het_tf/core/row/limits.h"
#include "het_tf/core/row/optimizer.h"
#include "het_tf/core/row/row_store.h"
#include "het_tf/core/row/stored_format.h"

namespace het {

struct TableSpec {
  std::string name;
  uint32_t dim = 0;
  OptimizerSpec optimizer;
  InitializerSpec initializer;
  uint64_t seed = 0;
  // Penalty l2 * |value|^2 on the rows of a step: its gradient 2 * l2 * value is added
  // (keras.regularizers.L2).
  double l2 = 0;
  // After a tick a value longer than this is scaled back to it (keras.constraints.MaxNorm); 0: no limit.
  double max_norm = 0;
  // How stores keep the rows (stored_format.h).
  Stored stored = Stored::kFloat32;
  // Absent: keep an existing table's limits; a new table has none.
  std::optional<TableLimits> limits;
  // The name from which initial rows are drawn; empty: the table's own.
  std::string drawn_as;
};

class TableSchema {
 public:
  static constexpr uint32_t kMaxDim = 65536;

  // InvalidArgument names the field, its value and the legal values.
  static Result<std::shared_ptr<const TableSchema>> Create(TableSpec spec);

  const TableSpec& spec() const { return spec_; }
  uint64_t id() const { return id_; }  // HashName(name); identifies the table in frames
  uint32_t dim() const { return spec_.dim; }
  size_t row_floats() const { return optimizer_->row_floats(); }
  const Optimizer& optimizer() const { return *optimizer_; }
  const StoredFormat& stored() const { return stored_; }

  // Writes the row before any update, as it would be stored: value and slots.
  void InitRow(Key key, float* row) const {
    initializer_.Fill(key, row);
    optimizer_->InitSlots(row);
    if (!stored_.exact()) stored_.Round(/*draw=*/0, row);
  }
  // Writes only its value.
  void InitValue(Key key, float* value) const {
    initializer_.Fill(key, value);
    if (!stored_.exact()) stored_.RoundValue(/*draw=*/0, value);
  }

  // One tick with all of the spec: L2, optimizer, max-norm. `update` as in Optimizer::Apply. The gradient is
  // g times `scale`, exactly g for 1; `scratch`: room for dim floats, may be g.
  // `clock`: of the row before the tick.
  void Tick(float learning_rate, const float* g, float scale, float* scratch, Clock clock, float* row,
            float* update) const {
    if (plain_ && scale == 1)
      return optimizer_->Apply(learning_rate, g, static_cast<float>(AgeOf(clock)), row, update);
    TickWithLimits(learning_rate, g, scale, scratch, clock, row, update);
  }
  void Tick(float learning_rate, float* g, Clock clock, float* row, float* update) const {
    Tick(learning_rate, g, 1, g, clock, row, update);
  }

  // One line of JSON, equal for equal specs: without limits, in which equal tables may differ.
  std::string ToJson() const;
  // The same with these limits.
  std::string ToJson(const TableLimits& limits) const;

 private:
  TableSchema(TableSpec spec, std::unique_ptr<Optimizer> optimizer, Initializer initializer);
  void TickWithLimits(float learning_rate, const float* g, float scale, float* scratch, Clock clock,
                      float* row, float* update) const;

  TableSpec spec_;
  uint64_t id_;
  bool plain_;  // neither l2 nor max_norm
  std::unique_ptr<Optimizer> optimizer_;
  StoredFormat stored_;
  Initializer initializer_;
};

using Schema = std::shared_ptr<const TableSchema>;

// The inverse of ToJson. A missing field gets its default; an unknown one is InvalidArgument.
Result<TableSpec> ParseTableSpec(const std::string& json);

// Whether readers may take one table's values for the other's: equal dim, and equal initial rows. Readers do
// not depend on the optimizer.
bool SameValues(const TableSpec& a, const TableSpec& b);

// Lists the fields in which two JSON objects differ: "dim is 2, and 3 is wanted; seed is 7, and 0 is wanted".
std::string DifferentFields(const std::string& here, const std::string& wanted);

}  // namespace het
