#include "tests/testing/redis/remote_worker.h"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "het_tf/ext/streams/cc/window.h"
#include "tests/testing/keep_and_apply.h"
#include "tests/testing/table_specs.h"

namespace het::testing {

std::function<void(const std::string&)> Notices::Listener() {
  return [this](const std::string& text) {
    std::lock_guard<std::mutex> lock(mutex_);
    texts_.push_back(text);
  };
}

std::vector<std::string> Notices::With(const std::string& part) const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> found;
  for (const std::string& text : texts_) {
    if (text.find(part) != std::string::npos) found.push_back(text);
  }
  return found;
}

RemoteWorker::RemoteWorker(const std::string& address, ClientConfig config, int64_t bound, size_t capacity) {
  if (config.notice == nullptr) config.notice = notices.Listener();
  auto made = OpenRemoteEngine(ParseServerAddress(address).value(), "", 1, config);
  EXPECT_TRUE(made.ok()) << made.status().message();
  if (!made.ok()) return;
  engine_ = made.value();
  TableOptions options;
  options.cache = CacheConfig();
  options.cache->capacity = capacity;
  options.cache->pull_bound = bound;
  options.cache->push_bound = bound;
  options.cache->write_back_rows = 0;
  const Status created = engine_->tables().Create(NewSpec("t", kDim, "sgd", {"zeros", 0, 0}), options);
  EXPECT_TRUE(created.ok()) << created.message();
}

Status RemoteWorker::Step(const std::vector<int64_t>& ids) {
  std::vector<float> out(ids.size() * kDim);
  uint64_t token = 0;
  HET_RETURN_IF_ERROR(Lookup(ids, &out, &token));
  const std::vector<float> ones(out.size(), -1);
  return KeepAndApply(&engine_->steps(), Batch(ids), token, ones);
}

void RemoteWorker::Train(const std::vector<int64_t>& ids) {
  const Status status = Step(ids);
  EXPECT_TRUE(status.ok()) << status.message();
}

void RemoteWorker::Plan(const std::vector<int64_t>& ids) {
  // May run during another thread's step, so it has its own batch.
  const TablePtr table = engine_->tables().Find("t").value();
  const FeatureIds feature{0, Span<const int64_t>(ids.data(), ids.size()), std::nullopt};
  const Status status = Window::Of(engine_->lookahead())
                            .Plan({Span<const TablePtr>(&table, 1), Span<const FeatureIds>(&feature, 1)}, 8);
  EXPECT_TRUE(status.ok()) << status.message();
}

float RemoteWorker::Value(int64_t id) {
  std::vector<float> out(kDim);
  const Status status = Lookup({id}, &out, nullptr);
  EXPECT_TRUE(status.ok()) << status.message();
  return status.ok() ? out[0] : -1;
}

uint64_t RemoteWorker::Counter(const std::string& name) {
  auto stats = engine_->tables().Stats("t");
  EXPECT_TRUE(stats.ok()) << stats.status().message();
  const std::string text = stats.ok() ? ToJson(stats.value()) : "";
  const size_t at = text.find("\"" + name + "\":");
  EXPECT_NE(at, std::string::npos) << name << " in " << text;
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + name.size() + 3, nullptr, 10);
}

BatchCall RemoteWorker::Batch(const std::vector<int64_t>& ids) {
  table_ = engine_->tables().Find("t").value();
  feature_ = {0, Span<const int64_t>(ids.data(), ids.size()), std::nullopt};
  return {Span<const TablePtr>(&table_, 1), Span<const FeatureIds>(&feature_, 1)};
}

Status RemoteWorker::Lookup(const std::vector<int64_t>& ids, std::vector<float>* out, uint64_t* token) {
  float* const outs[] = {out->data()};
  return engine_->steps().Lookup(Batch(ids), Span<float* const>(outs, 1), token);
}

}  // namespace het::testing
