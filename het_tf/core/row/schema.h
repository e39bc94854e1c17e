// What a table is, and what happens to one row of it. Immutable and shared by every partition, cache and
// worker.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/row/initializer.h"
#include "het_tf/core/row/limits.h"
#include "het_tf/core/row/optimizer.h"

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
  // Absent: leave them as they are, for a table that is there; none, for a new one.
  std::optional<TableLimits> limits;
  // The name by which initial rows are drawn; empty: the table's own.
  std::string drawn_as;
};

class TableSchema {
 public:
  static constexpr uint32_t kMaxDim = 65536;

  // InvalidArgument names the field, its value and what is legal.
  static Result<std::shared_ptr<const TableSchema>> Create(TableSpec spec);

  const TableSpec& spec() const { return spec_; }
  uint64_t id() const { return id_; }  // HashName(name); what frames call the table
  uint32_t dim() const { return spec_.dim; }
  size_t row_floats() const { return optimizer_->row_floats(); }
  const Optimizer& optimizer() const { return *optimizer_; }

  // The row that nobody has written: value and slots.
  void InitRow(Key key, float* row) const {
    initializer_.Fill(key, row);
    optimizer_->InitSlots(row);
  }
  // Its value alone.
  void InitValue(Key key, float* value) const { initializer_.Fill(key, value); }

  // One tick with everything that the spec asks for: L2, optimizer, max-norm. `update` as in
  // Optimizer::Apply. Uses g up: what it holds afterwards means nothing.
  void Tick(float learning_rate, float* g, float* row, float* update) const;

  // One line of JSON, equal for equal specs: without limits, in which equal tables may differ.
  std::string ToJson() const;
  // The same with these limits.
  std::string ToJson(const TableLimits& limits) const;

 private:
  TableSchema(TableSpec spec, std::unique_ptr<Optimizer> optimizer, Initializer initializer);

  TableSpec spec_;
  uint64_t id_;
  std::unique_ptr<Optimizer> optimizer_;
  Initializer initializer_;
};

using Schema = std::shared_ptr<const TableSchema>;

// The inverse of ToJson; a missing field has its default, an unknown one is InvalidArgument.
Result<TableSpec> ParseTableSpec(const std::string& json);

// In which fields two JSON objects differ: "dim is 2, and 3 is wanted; seed is 7, and 0 is wanted".
std::string DifferentFields(const std::string& here, const std::string& wanted);

}  // namespace het
