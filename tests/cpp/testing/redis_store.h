// One partition in a redis-server, and beside it the same partition in the test: both get the same frames, so
// what the server holds and answers can be compared.
#ifndef HET_TESTS_CPP_TESTING_REDIS_STORE_H_
#define HET_TESTS_CPP_TESTING_REDIS_STORE_H_

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/chunk.h"
#include "tests/cpp/testing/random.h"
#include "tests/cpp/testing/redis_server.h"

namespace het::testing {

inline std::string ToText(const Bytes& bytes) { return std::string(bytes.begin(), bytes.end()); }
inline Span<const uint8_t> View(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
inline std::string Encoded(const Request& request) {
  Bytes bytes;
  Encode(request, &bytes);
  return ToText(bytes);
}
inline Reply Decoded(const RedisReply& reply) {
  Reply decoded;
  EXPECT_EQ(reply.type, REDIS_REPLY_STRING) << reply.text;
  EXPECT_TRUE(Decode(View(reply.text), &decoded).ok()) << reply.text;
  return decoded;
}

// A reply frame without the incarnation, the only thing in which two copies of a partition differ.
inline std::string WithoutInc(const std::string& frame) {
  Reply reply;
  if (!Decode(View(frame), &reply).ok()) return frame;
  reply.inc = 0;
  Bytes bytes;
  Encode(reply, &bytes);
  return ToText(bytes);
}

// (table, key) -> clock, count and floats, as bytes. Not last_used, which is the server's time.
using Rows = std::map<std::pair<uint64_t, Key>, std::string>;

inline void AddRows(const std::string& chunk, Rows* rows) {
  if (chunk.empty()) return;
  Reader r(View(chunk));
  r.Raw(8);
  const auto table = r.Fixed<uint64_t>();
  const auto floats = r.Fixed<uint32_t>();
  const auto count = r.Fixed<uint32_t>();
  for (uint32_t i = 0; i < count; ++i) {
    const auto key = r.Fixed<Key>();
    const size_t size = 8 + 4 + 2 + floats * sizeof(float);
    const uint8_t* row = r.Raw(size);
    ASSERT_NE(row, nullptr);
    std::string content(row, row + size);
    content.erase(8, 4);
    ASSERT_TRUE(rows->emplace(std::make_pair(table, key), std::move(content)).second) << "twice";
  }
  ASSERT_EQ(r.left(), 0u);
}

inline TableSpec MakeSpec(const std::string& name, uint32_t dim, const std::string& optimizer = "adagrad") {
  TableSpec spec;
  spec.name = name;
  spec.dim = dim;
  spec.optimizer.name = optimizer;
  spec.initializer = {"uniform", -1, 1};
  spec.seed = 5;
  return spec;
}

// The two, with the tables "a" (dim 3, adagrad) and "b" (dim 2, sgd).
class RedisStore {
 public:
  static constexpr ClientId kClient{0x1234, 0x5678};

  explicit RedisStore(std::unique_ptr<RedisServer> server) : server_(std::move(server)) {}

  RedisServer& server() { return *server_; }
  Partition& model() { return model_; }
  RedisReply Command(const RedisServer::Arguments& args) { return server_->Command(args); }

  void Create() {
    ASSERT_TRUE(Command({"HET.TABLE", "p", "CREATE", "1", "4", "99"}).ok());
    AddTable(MakeSpec("a", 3), 1001);
    AddTable(MakeSpec("b", 2, "sgd"), 1002);
  }
  void AddTable(const TableSpec& spec, uint64_t epoch) {
    const Schema schema = TableSchema::Create(spec).value();
    ASSERT_TRUE(model_.CreateTable(schema, epoch).ok());
    const RedisReply reply = Command({"HET.TABLE", "p", "ADD", schema->ToJson(), std::to_string(epoch)});
    ASSERT_EQ(reply.text, std::to_string(epoch));
    schemas_.push_back(schema);
  }

  // A request about all tables; seq 0: it pushes nothing.
  Request NewRequest(uint64_t seq, size_t pushes = 5, size_t reads = 4) {
    Request q;
    q.request_id = static_cast<uint32_t>(random_.Next());
    q.partition = model_.id();
    q.client = kClient;
    q.seq = seq;
    q.after_seq = seq == 0 ? model_.LastSeq(kClient) : seq - 1;
    for (const Schema& schema : schemas_) {
      q.tables.emplace_back();
      TableRequest& t = q.tables.back();
      t.table = schema->id();
      t.epoch = model_.Find(t.table)->epoch();
      t.update_floats = static_cast<uint32_t>(schema->optimizer().wire_floats());
      for (size_t i = 0; seq != 0 && i < pushes; ++i) {
        t.push_keys.push_back(NewKey());
        t.push_ticks.push_back(static_cast<uint32_t>(1 + random_.Below(3)));
        for (uint32_t k = 0; k < t.update_floats; ++k) {
          t.push_updates.push_back(static_cast<float>(random_.Unit()));
        }
      }
      t.bound = 2;
      for (size_t i = 0; i < reads; ++i) {
        t.check_keys.push_back(NewKey());
        t.check_clocks.push_back(static_cast<Clock>(random_.Below(5)));
        t.fetch_keys.push_back(NewKey());
      }
    }
    return q;
  }
  void set_keys(uint64_t keys) { keys_ = keys; }

  // The same frame to both; the answers must be equal.
  Reply Handle(const std::string& command, const Request& request) {
    const std::string frame = Encoded(request);
    Bytes expected;
    const Handled handled = model_.Handle(View(frame), &expected);
    pushes_applied_ += handled.applied;
    const RedisReply reply = Command({command, "p", frame});
    EXPECT_EQ(WithoutInc(reply.text), WithoutInc(ToText(expected)));
    return Decoded(reply);
  }
  void Push(size_t frames) {
    for (size_t i = 0; i < frames; ++i) {
      const Reply reply = Handle("HET.STEP", NewRequest(model_.LastSeq(kClient) + 1));
      ASSERT_EQ(reply.status, FrameStatus::kOk) << reply.message;
    }
  }
  uint64_t pushes_applied() const { return pushes_applied_; }

  Rows ServerRows(const std::string& key = "p", const std::string& count = "7") {
    return ScanAll(server_.get(), key, count);
  }
  static Rows ScanAll(RedisServer* server, const std::string& key, const std::string& count) {
    Rows rows;
    std::string cursor = "0";
    do {
      const RedisReply reply = server->Command({"HET.SCAN", key, cursor, "COUNT", count});
      EXPECT_EQ(reply.elements.size(), 2u) << reply.text;
      if (reply.elements.size() != 2) break;
      cursor = reply.elements[0].text;
      AddRows(reply.elements[1].text, &rows);
    } while (cursor != "0");
    return rows;
  }
  Rows ModelRows() {
    Rows rows;
    ScanPosition at;
    bool more = true;
    while (more) {
      Bytes chunk;
      more = ScanRows(model_, &at, 3, kMaxChunkBytes, &chunk);
      AddRows(ToText(chunk), &rows);
    }
    return rows;
  }

  // Rows, clocks, last_seq, epochs and specs.
  void ExpectEqual(RedisServer* server = nullptr) {
    if (server == nullptr) server = server_.get();
    ASSERT_TRUE(server->up()) << server->Log();
    EXPECT_EQ(ScanAll(server, "p", "1000"), ModelRows());
    const RedisReply reply = server->Command({"HET.READ", "p", Encoded(NewRequest(0))});
    EXPECT_EQ(Decoded(reply).last_seq, model_.LastSeq(kClient));
    EXPECT_EQ(Decoded(reply).status, FrameStatus::kOk);
    const RedisReply tables = server->Command({"HET.STAT", "p", "TABLES"});
    ASSERT_EQ(tables.elements.size(), model_.shards().size());
    size_t i = 0;
    for (const auto& [id, shard] : model_.shards()) {
      const auto& line = tables.elements[i++].elements;
      ASSERT_EQ(line.size(), 6u);
      EXPECT_EQ(line[0].text, shard->schema().spec().name);
      EXPECT_EQ(line[1].text, shard->schema().ToJson(shard->limits()));
      EXPECT_EQ(line[2].text, std::to_string(shard->epoch()));
      EXPECT_EQ(line[3].integer, static_cast<int64_t>(shard->rows().size()));
      EXPECT_EQ(line[5].integer, shard->clock_floor());
    }
  }

  // Of what a key holds: equal for equal partitions.
  std::string Digest(const std::string& key = "p") {
    const RedisReply reply = Command({"DEBUG", "DIGEST-VALUE", key});
    return reply.elements.size() == 1 ? reply.elements[0].text : "no digest: " + reply.text;
  }
  std::string Stat(const std::string& field, const std::string& key = "p") {
    return StatOf(server_.get(), field, key);
  }
  static std::string StatOf(RedisServer* server, const std::string& field, const std::string& key = "p") {
    const RedisReply reply = server->Command({"HET.STAT", key});
    for (size_t i = 0; i + 1 < reply.elements.size(); i += 2) {
      const RedisReply& value = reply.elements[i + 1];
      if (reply.elements[i].text != field) continue;
      return value.type == REDIS_REPLY_INTEGER ? std::to_string(value.integer) : value.text;
    }
    return "no " + field + ": " + reply.text;
  }

 private:
  Key NewKey() {
    if (random_.Chance(0.02)) return INT64_MIN;
    return static_cast<Key>(random_.Below(keys_)) - 10;
  }

  std::unique_ptr<RedisServer> server_;
  Partition model_{PartitionId{1, 4, 99}, 7};
  std::vector<Schema> schemas_;
  Random random_{17};
  uint64_t keys_ = 60;
  uint64_t pushes_applied_ = 0;
};

// A test with a store; skipped, with the reason, where no server can run.
class RedisTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = RedisServer::Missing(); !missing.empty()) GTEST_SKIP() << missing;
  }
  void Start(RedisServer::Arguments settings = {}) {
    store_ = std::make_unique<RedisStore>(std::make_unique<RedisServer>(std::move(settings)));
    ASSERT_TRUE(store_->server().up()) << store_->server().Log();
    store_->Create();
  }
  RedisStore& store() { return *store_; }
  RedisServer& server() { return store_->server(); }
  RedisReply Command(const RedisServer::Arguments& args) { return store_->Command(args); }

 private:
  std::unique_ptr<RedisStore> store_;
};

}  // namespace het::testing

#endif  // HET_TESTS_CPP_TESTING_REDIS_STORE_H_
