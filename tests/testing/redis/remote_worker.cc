#include "tests/testing/redis/remote_worker.h"

#include <cstdlib>

namespace het::testing {

ClientConfig Notices::Listening(ClientConfig config) {
  if (config.notice != nullptr) return config;
  config.notice = [this](const std::string& text) {
    std::lock_guard<std::mutex> lock(mutex_);
    texts_.push_back(text);
  };
  return config;
}

std::vector<std::string> Notices::NoticesWith(const std::string& part) const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> found;
  for (const std::string& text : texts_) {
    if (text.find(part) != std::string::npos) found.push_back(text);
  }
  return found;
}

namespace {

CacheConfig NewCache(int64_t bound, size_t capacity) {
  CacheConfig cache;
  cache.capacity = capacity;
  cache.pull_bound = cache.push_bound = bound;
  cache.write_back_rows = 0;
  return cache;
}

}  // namespace

RemoteWorker::RemoteWorker(const ServerAddress& address, const ClientConfig& config, int64_t bound,
                           size_t capacity)
    : RemoteWorker(address, config, NewCache(bound, capacity)) {}

RemoteWorker::RemoteWorker(const ServerAddress& address, const ClientConfig& config, const CacheConfig& cache)
    : Process(ValueOf(OpenRemoteEngine(address, "", 1, Listening(config))), Spec(), {cache}) {}

void RemoteWorker::Train(const std::vector<int64_t>& ids) { EXPECT_TRUE(Ok(Count(ids))); }

void RemoteWorker::Flush() { EXPECT_TRUE(Ok(engine().caches().Flush())); }

uint64_t RemoteWorker::Counter(const std::string& name) {
  const std::string text = ToJson(ValueOf(engine().tables().Stats("t")));
  const size_t at = text.find("\"" + name + "\":");
  EXPECT_NE(at, std::string::npos) << name << " in " << text;
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + name.size() + 3, nullptr, 10);
}

}  // namespace het::testing
