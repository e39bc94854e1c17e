#include "het_tf/ext/serving/kernels/online_tables.h"

#include <utility>

#include "het_tf/core/base/after_fork.h"
#include "het_tf/ext/ps/client/online_store.h"
#include "het_tf/ext/serving/cc/serve/online_spec.h"

namespace het {
namespace {

// TensorFlow's functions turn Unavailable, which means a lost worker to them, into Internal.
Status ForGraphs(const Status& status) {
  return status.code() == Code::kUnavailable ? Status(Code::kDeadlineExceeded, status.message()) : status;
}

}  // namespace

Result<std::unique_ptr<OnlineTables>> OnlineTables::Create(const CallSpec& spec) {
  HET_ASSIGN_OR_RETURN(auto online, serve::ParseOnlineSpec(spec.online()));
  return std::make_unique<OnlineTables>(&spec);
}

Result<OnlineTables::Resolved> OnlineTables::Resolve() {
  HET_RETURN_IF_ERROR(CheckNotInChild());
  std::lock_guard<std::mutex> lock(mutex_);
  if (reader_ == nullptr) {
    RefuseInChildren();
    auto reader = OpenOnlineReader(spec_->online(), spec_->name_space());
    if (!reader.ok()) return ForGraphs(reader.status());
    std::vector<serve::OnlineTable*> tables;
    for (const Schema& schema : spec_->schemas()) {
      auto table = reader.value()->FindTable(schema);
      if (!table.ok()) return ForGraphs(table.status());
      tables.push_back(table.value());
    }
    tables_ = std::move(tables);
    reader_ = std::move(reader.value());
  }
  return Resolved{reader_, &tables_};
}

Status OnlineTables::Resolved::Lookup(Span<const FeatureIds> features, Span<float* const> out) const {
  std::vector<serve::OnlineRead> reads;
  reads.reserve(features.size());
  for (size_t f = 0; f < features.size(); ++f) {
    const FeatureIds& feature = features[f];
    reads.push_back({(*tables)[feature.table], feature.ids, feature.padding_id, out[f]});
  }
  return reader->Lookup({reads.data(), reads.size()});
}

}  // namespace het
