#include "tests/testing/redis/remote_worker.h"

#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

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
  TableOptions options;
  options.cache = CacheConfig();
  options.cache->capacity = capacity;
  options.cache->pull_bound = bound;
  options.cache->push_bound = bound;
  options.cache->write_back_rows = 0;
  process_ = std::make_unique<Process>(made.value(), NewSpec("t", kDim, "sgd", {"zeros", 0, 0}), options);
}

void RemoteWorker::Train(const std::vector<int64_t>& ids) {
  const Status status = Step(ids);
  EXPECT_TRUE(status.ok()) << status.message();
}

uint64_t RemoteWorker::Counter(const std::string& name) {
  auto stats = engine().tables().Stats("t");
  EXPECT_TRUE(stats.ok()) << stats.status().message();
  const std::string text = stats.ok() ? ToJson(stats.value()) : "";
  const size_t at = text.find("\"" + name + "\":");
  EXPECT_NE(at, std::string::npos) << name << " in " << text;
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + name.size() + 3, nullptr, 10);
}

}  // namespace het::testing
