// One partition in a redis-server and the same partition in the test. Both get the same frames, so that
// content and answers can be compared.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "het_tf/core/store/chunk.h"
#include "tests/testing/keys.h"
#include "tests/testing/random.h"
#include "tests/testing/redis/redis_server.h"

namespace het::testing {

inline std::string ToText(const Bytes& bytes) { return std::string(bytes.begin(), bytes.end()); }
inline Span<const uint8_t> View(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
std::string Encoded(const Request& request);
Reply Decoded(const RedisReply& reply);

// (table, key) -> clock, count and floats, as bytes; without last_used, which is the server's time.
using Rows = std::map<std::pair<uint64_t, Key>, std::string>;

// Those of a partition, by pages of `count`.
Rows ServerRows(RedisServer* server, const std::string& key = "p", const std::string& count = "7");

TableSpec MakeSpec(const std::string& name, uint32_t dim, const std::string& optimizer = "adagrad");

// The two partitions, with the tables "a" (dim 3, adagrad) and "b" (dim 2, sgd).
class RedisStore {
 public:
  static constexpr ClientId kClient{0x1234, 0x5678};

  explicit RedisStore(std::unique_ptr<RedisServer> server);
  ~RedisStore();

  RedisServer& server() { return *server_; }
  Partition& model() { return model_; }
  RedisReply Command(const RedisServer::Arguments& args) { return server_->Command(args); }

  void Create();
  void AddTable(const TableSpec& spec, uint64_t epoch);

  // Makes a request about all tables; seq 0: without a push.
  Request NewRequest(uint64_t seq, size_t pushes = 5, size_t reads = 4);
  void set_keys(uint64_t keys) { keys_ = keys; }

  // Sends the frame to both; the answers must be equal.
  Reply Handle(const std::string& command, const Request& request);
  void Push(size_t frames);
  uint64_t pushes_applied() const { return pushes_applied_; }

  Rows ModelRows();

  // Compares rows, clocks, last_seq, epochs and specs.
  void ExpectEqual(RedisServer* server = nullptr);

 private:
  // A key that is not in `taken`; adds it there.
  Key NewKey(std::unordered_set<Key>* taken);

  std::unique_ptr<RedisServer> server_;
  Partition model_{PartitionId{1, 4, 99}, 7};
  std::vector<Schema> schemas_;
  Random random_{17};
  uint64_t keys_ = 60;
  uint64_t pushes_applied_ = 0;
};

// A test with a store.
class RedisTest : public NeedsRedis<> {
 protected:
  void Start(RedisServer::Arguments settings = {});
  // For AddReplica.
  void StartPrimary(RedisServer::Arguments settings = {});
  // A replica that has everything.
  RedisServer& AddReplica(RedisServer::Arguments settings = {});
  RedisStore& store() { return *store_; }
  RedisServer& server() { return store_->server(); }
  RedisReply Command(const RedisServer::Arguments& args) { return store_->Command(args); }

 private:
  std::unique_ptr<RedisStore> store_;
  std::unique_ptr<RedisServer> replica_;
  const std::string port_ = std::to_string(RedisServer::FreePort());
};

}  // namespace het::testing
