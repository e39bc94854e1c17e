// The specs of a HetLookup or HetApplyGrad node: its attribute `specs`, parsed once, and its tables, resolved
// when they are used. Independent of TensorFlow: kernels of every device use it.
//
// specs is one JSON object:
//   "namespace"   of the tables; "" is the default one
//   "tables"      [spec of a table as in core/row/schema.h, ...]: tells a fresh process what a graph needs
//   "features"    [{"table": number in "tables", "padding_id": integer or null, "name": optional, for
//                 messages}, ...], one for each ids input
//   "needs_loss_scale"  optional: true if the layer computes in float16 (rule 4 of the design)
// Other fields are for Python.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "het_tf/core/engine/engine.h"

namespace het {

class CallSpec {
 public:
  struct Feature {
    uint32_t table = 0;
    std::optional<Key> padding_id;
    std::string name;
  };
  // The current tables, for one call: holds the engine.
  struct Resolved {
    std::shared_ptr<Engine> engine;
    std::shared_ptr<const std::vector<TablePtr>> tables;
  };

  // Parses the attribute `specs`.
  static Result<std::unique_ptr<CallSpec>> Create(const std::string& specs);
  // The same, and compares it with the attribute `tables`: the table of each feature.
  static Result<std::unique_ptr<CallSpec>> Create(const std::vector<std::string>& tables,
                                                  const std::string& specs);

  const std::vector<Feature>& features() const { return features_; }
  const std::vector<std::string>& tables() const { return tables_; }
  const std::string& name_space() const { return name_space_; }
  const std::vector<Schema>& schemas() const { return schemas_; }  // of the tables
  // For each table, the variable that stands for it (kept_gradients.h).
  const std::vector<uint64_t>& variables() const { return variables_; }
  // Rows of the tickets of a gradient: KeptGradients::kSlots for each different variable.
  size_t ticket_rows() const { return ticket_rows_; }
  // The ids of each feature: ids[f], counts[f] of feature f.
  std::vector<FeatureIds> FeaturesOf(const int64_t* const* ids, const size_t* counts) const;
  // Equal for equal layers in different processes.
  uint64_t signature() const { return signature_; }

  // FailedPrecondition: a table does not exist in this process, or is not the graph's. Thread-safe; caches
  // the answer until a table is created or dropped. Only calls hold the engine: when it is reset, it ends
  // with its connections, however long a graph holds this node.
  Result<Resolved> Resolve();

 private:
  Status Parse(const std::string& specs);
  Status CheckTable(size_t index, const Table& table) const;

  std::string name_space_;
  std::vector<std::string> tables_;  // names, in the order of "tables"
  std::vector<std::string> specs_;   // for each table, as TableSchema::ToJson writes it
  std::vector<Schema> schemas_;
  std::vector<Feature> features_;
  std::vector<uint64_t> variables_;
  size_t ticket_rows_ = 0;
  uint64_t signature_ = 0;

  std::mutex mutex_;  // guards the members below: the last answer
  std::weak_ptr<Engine> engine_;
  uint64_t generation_ = 0;
  std::shared_ptr<const std::vector<TablePtr>> resolved_;
};

// InvalidArgument: an id is -2^63, which is NaN converted to an integer, and is not the feature's padding;
// the message names the feature and the number of such ids.
Status CheckIds(const CallSpec& spec, Span<const FeatureIds> features);

}  // namespace het
