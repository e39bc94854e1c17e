#include "het_tf/core/engine/table_catalog.h"

#include "het_tf/core/engine/table_options.h"

namespace het {

Result<TablePtr> TableCatalog::Find(const std::string& name) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = tables_.find(name);
  if (it != tables_.end()) return it->second;
  std::string known;
  for (const auto& entry : tables_) known += (known.empty() ? "'" : ", '") + entry.first + "'";
  return Status(Code::kNotFound,
                "no table '" + name + "' in namespace '" + name_space_ + "'; this process has declared " +
                    (known.empty() ? "none" : known) +
                    ". Build the layer that declares it, also to open a table that a "
                    "parameter server has (`het ps status` lists those), or load a checkpoint");
}

std::vector<std::string> TableCatalog::Names() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> names;
  for (const auto& entry : tables_) names.push_back(entry.first);
  return names;
}

Result<TablePtr> TableCatalog::FindEqual(const TableSchema& schema, const TableOptions& options) const {
  const std::string& name = schema.spec().name;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = tables_.find(name);
  if (it == tables_.end()) return TablePtr();
  std::string differ = DifferentFields(it->second->schema->ToJson(), schema.ToJson());
  const std::string options_differ = DifferentFields(ToJson(it->second->options), ToJson(options));
  if (!differ.empty() && !options_differ.empty()) differ += "; ";
  differ += options_differ;
  if (differ.empty()) return it->second;
  return Status(Code::kAlreadyExists,
                "table '" + name + "' exists with another spec: " + differ +
                    ". Give the tables different names, make the specs equal, or call het_tf.reset() first");
}

void TableCatalog::Add(const Schema& schema, const TableOptions& options) {
  auto table = std::make_shared<Table>();
  table->schema = schema;
  table->options = options;
  std::lock_guard<std::mutex> lock(mutex_);
  tables_[schema->spec().name] = std::move(table);
  generation_.fetch_add(1);
}

void TableCatalog::Remove(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  tables_.erase(name);
  generation_.fetch_add(1);
}

}  // namespace het
