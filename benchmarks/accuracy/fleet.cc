#include "benchmarks/accuracy/fleet.h"

#include <algorithm>

#include "het_tf/core/client/client.h"
#include "het_tf/core/store/local_store.h"
#include "het_tf/core/store/local_transport.h"
#include "het_tf/core/wire/layout.h"
#include "het_tf/ext/streams/cc/window.h"
#include "tests/testing/keep_and_apply.h"

namespace het::accuracy {

Result<std::unique_ptr<Fleet>> Fleet::Create(uint32_t workers, uint32_t partitions,
                                             const std::vector<std::string>& specs,
                                             const std::vector<std::string>& options,
                                             std::vector<Feature> features) {
  if (workers == 0 || workers > 1024 || partitions == 0 || partitions > 65536 || specs.empty() ||
      specs.size() != options.size()) {
    return InvalidArgument(
        "give 1 to 1024 workers, 1 to 65536 partitions, and options for each of one table or more");
  }
  for (const Feature& feature : features) {
    if (feature.table >= specs.size()) return InvalidArgument("a feature names a table that there is not");
  }
  std::unique_ptr<Fleet> fleet(new Fleet(workers, partitions));
  fleet->features_ = std::move(features);
  for (uint32_t w = 0; w < workers; ++w) {
    ClientConfig config;
    config.seed = w;
    fleet->engines_.push_back(std::make_unique<Engine>(
        "worker " + std::to_string(w), 1, std::make_unique<LocalStore>(&fleet->service_),
        std::make_unique<LocalTransport>(&fleet->service_), config));
    fleet->tables_.emplace_back();
    for (size_t t = 0; t < specs.size(); ++t) {
      auto spec = ParseTableSpec(specs[t]);
      if (!spec.ok()) return spec.status();
      HET_ASSIGN_OR_RETURN(const auto schema, TableSchema::Create(spec.value()));
      HET_ASSIGN_OR_RETURN(const auto given, ParseCacheOptions(options[t]));
      HET_ASSIGN_OR_RETURN(const auto cache, given.Resolve(*schema, /*remote=*/false));
      HET_RETURN_IF_ERROR(fleet->engines_[w]->tables().Create(spec.value(), cache));
      auto table = fleet->engines_[w]->tables().Find(spec.value().name);
      if (!table.ok()) return table.status();
      fleet->tables_[w].push_back(table.value());
      if (w == 0) fleet->schemas_.push_back(table.value()->schema);
    }
  }
  return fleet;
}

BatchCall Fleet::Call(uint32_t worker, Span<const int64_t* const> ids, Span<const size_t> counts) {
  call_features_.clear();
  for (size_t f = 0; f < features_.size(); ++f) {
    const size_t part = counts[f] / workers_;
    call_features_.push_back(
        {features_[f].table, Span<const int64_t>(ids[f] + worker * part, part), features_[f].padding_id});
  }
  return {Span<const TablePtr>(tables_[worker].data(), tables_[worker].size()),
          Span<const FeatureIds>(call_features_.data(), call_features_.size())};
}

Status Fleet::Read(Span<const int64_t* const> ids, Span<const size_t> counts, Span<float* const> out) {
  if (!tokens_.empty()) return Status(Code::kFailedPrecondition, "the step before was read and not written");
  HET_RETURN_IF_ERROR(CheckParts(counts));
  std::vector<float*> part_out(features_.size());
  std::vector<uint64_t> tokens(workers_);
  for (uint32_t w = 0; w < workers_; ++w) {
    for (size_t f = 0; f < features_.size(); ++f) {
      part_out[f] = out[f] + w * (counts[f] / workers_) * schemas_[features_[f].table]->dim();
    }
    HET_RETURN_IF_ERROR(engines_[w]->steps().Lookup(
        Call(w, ids, counts), Span<float* const>(part_out.data(), part_out.size()), &tokens[w]));
  }
  tokens_ = std::move(tokens);
  return Status();
}

Status Fleet::CheckParts(Span<const size_t> counts) const {
  for (size_t count : counts) {
    if (count % workers_ == 0) continue;
    return InvalidArgument("a feature has " + std::to_string(count) + " ids, which are not " +
                           std::to_string(workers_) + " equal parts");
  }
  return Status();
}

void Fleet::FillIn(Span<const int64_t* const> ids, Span<const size_t> counts, Everyone* everyone) const {
  for (size_t f = 0; f < features_.size(); ++f) {
    everyone->features.push_back(
        {features_[f].table, Span<const int64_t>(ids[f], counts[f]), features_[f].padding_id});
    everyone->ends.emplace_back();
    for (uint32_t w = 1; w <= workers_; ++w)
      everyone->ends.back().push_back(static_cast<int64_t>(counts[f] / workers_ * w));
  }
  for (const auto& ends : everyone->ends) everyone->ids.ends.emplace_back(ends);
  everyone->ids.features = Span<const FeatureIds>(everyone->features.data(), everyone->features.size());
}

Status Fleet::Plan(Span<const int64_t* const> ids, Span<const size_t> counts, uint64_t place) {
  constexpr size_t kWindow = 8;
  HET_RETURN_IF_ERROR(CheckParts(counts));
  Everyone everyone;
  FillIn(ids, counts, &everyone);
  everyone.ids.place = place;
  for (uint32_t w = 0; w < workers_; ++w) {
    everyone.ids.worker = w;
    HET_RETURN_IF_ERROR(Window::Of(engines_[w]->lookahead())
                            .Plan(Call(w, ids, counts), kWindow, place == 0 ? nullptr : &everyone.ids));
  }
  return Status();
}

Status Fleet::Write(Span<const int64_t* const> ids, Span<const size_t> counts,
                    Span<const float* const> gradients, Span<const float> learning_rates) {
  if (tokens_.empty())
    return Status(Code::kFailedPrecondition, "there is no step to write: Read comes first");
  const std::vector<uint64_t> tokens = std::move(tokens_);
  tokens_.clear();
  std::vector<const float*> part(features_.size());
  for (uint32_t w = 0; w < workers_; ++w) {
    for (size_t f = 0; f < features_.size(); ++f) {
      part[f] = gradients[f] + w * (counts[f] / workers_) * schemas_[features_[f].table]->dim();
    }
    ApplyArgs args;
    args.token = tokens[w];
    args.gradients = Span<const float* const>(part.data(), part.size());
    args.learning_rates = learning_rates;
    HET_RETURN_IF_ERROR(testing::KeepAndApply(&engines_[w]->steps(), Call(w, ids, counts), args));
  }
  return Status();
}

Status Fleet::Flush() {
  for (const auto& engine : engines_) HET_RETURN_IF_ERROR(engine->caches().Flush());
  return Status();
}

Status Fleet::Serve(uint32_t table, Span<const Key> keys, float* values) {
  if (table >= schemas_.size()) return InvalidArgument("there is no such table");
  const TableSchema& schema = *schemas_[table];
  const size_t dim = schema.dim();
  Vector<float> initial(dim);
  const TableLayout layout = Layout(service_.id(0)).OfTable(schema.id());
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64_t hash = layout.Hash(keys[i]);
    service_.WithPartition(layout.Of(hash), [&](Partition& partition) {
      const Shard& shard = *partition.Find(schema.id());
      const RowStore& rows = shard.rows();
      const uint32_t row = rows.Find(keys[i], hash);
      if (row == kNoRow) {
        schema.InitValue(keys[i], values + i * dim);
      } else {
        std::copy_n(shard.Read(rows.data(row), /*slots=*/false), dim, values + i * dim);
      }
    });
  }
  return Status();
}

Clock Fleet::LargestClock(uint32_t table) {
  Clock largest = 0;
  for (uint32_t p = 0; p < service_.partitions(); ++p) {
    service_.WithPartition(p, [&](Partition& partition) {
      const RowStore& rows = partition.Find(schemas_[table]->id())->rows();
      for (uint32_t row = 0; row < rows.end(); ++row) {
        if (rows.live(row)) largest = std::max(largest, rows.meta(row).clock);
      }
    });
  }
  return largest;
}

Result<std::string> Fleet::Stats() {
  std::string json = "[";
  for (uint32_t w = 0; w < workers_; ++w) {
    json += w == 0 ? "[" : ",[";
    for (size_t t = 0; t < schemas_.size(); ++t) {
      auto stats = engines_[w]->tables().Stats(schemas_[t]->spec().name);
      if (!stats.ok()) return stats.status();
      json += (t == 0 ? "" : ",") + ToJson(stats.value());
    }
    json += "]";
  }
  return json + "]";
}

}  // namespace het::accuracy
