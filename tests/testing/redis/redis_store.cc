#include "tests/testing/redis/redis_store.h"

#include <algorithm>

#include "tests/testing/handle_frame.h"
#include "tests/testing/requests.h"
#include "tests/testing/table_specs.h"

namespace het::testing {

std::string Encoded(const Request& request) {
  Bytes bytes;
  Encode(request, &bytes);
  return ToText(bytes);
}

Reply Decoded(const RedisReply& reply) {
  Reply decoded;
  EXPECT_EQ(reply.kind, het::RedisReply::kString) << reply.text;
  EXPECT_TRUE(Decode(View(reply.text), &decoded).ok()) << reply.text;
  return decoded;
}

namespace {

// A reply frame without the incarnation, the only difference between copies of a partition.
std::string WithoutInc(const std::string& frame) {
  Reply reply;
  if (!Decode(View(frame), &reply).ok()) return frame;
  reply.inc = 0;
  Bytes bytes;
  Encode(reply, &bytes);
  return ToText(bytes);
}

void AddRows(const std::string& chunk, Rows* rows) {
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

}  // namespace

TableSpec MakeSpec(const std::string& name, uint32_t dim, const std::string& optimizer) {
  TableSpec spec = NewSpec(name, dim, optimizer, {"uniform", -1, 1});
  spec.seed = 5;
  return spec;
}

RedisStore::RedisStore(std::unique_ptr<RedisServer> server) : server_(std::move(server)) {}

RedisStore::~RedisStore() = default;

void RedisStore::Create() {
  ASSERT_TRUE(Command({"HET.TABLE", "p", "CREATE", "1", "4", "99"}).ok());
  AddTable(MakeSpec("a", 3), 1001);
  AddTable(MakeSpec("b", 2, "sgd"), 1002);
}

void RedisStore::AddTable(const TableSpec& spec, uint64_t epoch) {
  const Schema schema = TableSchema::Create(spec).value();
  ASSERT_TRUE(model_.CreateTable(schema, epoch).ok());
  const RedisReply reply = Command({"HET.TABLE", "p", "ADD", schema->ToJson(), std::to_string(epoch)});
  ASSERT_EQ(reply.text, std::to_string(epoch));
  schemas_.push_back(schema);
}

Request RedisStore::NewRequest(uint64_t seq, size_t pushes, size_t reads) {
  Request q = RequestOf(model_.id(), kClient, seq);
  q.request_id = static_cast<uint32_t>(random_.Next());
  q.after_seq = seq == 0 ? model_.clients().LastSeq(kClient) : seq - 1;
  for (const Schema& schema : schemas_) {
    TableRequest& t = testing::AddTable(&q, *schema, model_.Find(schema->id())->epoch());
    std::unordered_set<Key> pushed, read;
    for (size_t i = 0; seq != 0 && i < pushes; ++i) {
      t.push_keys.push_back(NewKey(&pushed));
      t.push_ticks.push_back(static_cast<uint32_t>(1 + random_.Below(3)));
      for (uint32_t k = 0; k < t.update_floats; ++k) {
        t.push_updates.push_back(static_cast<float>(random_.Unit()));
      }
    }
    t.bound = 2;
    for (size_t i = 0; i < reads; ++i) {
      t.check_keys.push_back(NewKey(&read));
      t.check_clocks.push_back(static_cast<Clock>(random_.Below(5)));
      t.fetch_keys.push_back(NewKey(&read));
    }
    for (Vector<Key>* keys : {&t.push_keys, &t.check_keys, &t.fetch_keys})
      std::sort(keys->begin(), keys->end());
  }
  return q;
}

Reply RedisStore::Handle(const std::string& command, const Request& request) {
  const std::string frame = Encoded(request);
  Bytes expected;
  const Handled handled = HandleFrame(&model_, View(frame), &expected);
  pushes_applied_ += handled.applied;
  const RedisReply reply = Command({command, "p", frame});
  EXPECT_EQ(WithoutInc(reply.text), WithoutInc(ToText(expected)));
  return Decoded(reply);
}

void RedisStore::Push(size_t frames) {
  for (size_t i = 0; i < frames; ++i) {
    const Reply reply = Handle("HET.STEP", NewRequest(model_.clients().LastSeq(kClient) + 1));
    ASSERT_EQ(reply.status, FrameStatus::kOk) << reply.message;
  }
}

Rows ServerRows(RedisServer* server, const std::string& key, const std::string& count) {
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

Rows RedisStore::ModelRows() {
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

void RedisStore::ExpectEqual(RedisServer* server) {
  if (server == nullptr) server = server_.get();
  ASSERT_TRUE(server->up()) << server->Log();
  EXPECT_EQ(ServerRows(server, "p", "1000"), ModelRows());
  const Request question = NewRequest(0);
  const Reply reply = Decoded(server->Command({"HET.READ", "p", Encoded(question)}));
  EXPECT_EQ(reply.same_seq ? question.newest_seq() : reply.last_seq, model_.clients().LastSeq(kClient));
  EXPECT_EQ(reply.status, FrameStatus::kOk);
  const std::vector<RedisReply> tables = server->Tables();
  ASSERT_EQ(tables.size(), model_.shards().size());
  size_t i = 0;
  for (const auto& [id, shard] : model_.shards()) {
    const auto& line = tables[i++].elements;
    ASSERT_EQ(line.size(), 6u);
    EXPECT_EQ(line[0].text, shard->schema().spec().name);
    EXPECT_EQ(line[1].text, shard->schema().ToJson(shard->limits()));
    EXPECT_EQ(line[2].text, std::to_string(shard->epoch()));
    EXPECT_EQ(line[3].integer, static_cast<int64_t>(shard->rows().size()));
    EXPECT_EQ(line[5].integer, shard->clock_floor());
  }
}

Key RedisStore::NewKey(std::unordered_set<Key>* taken) {
  // Enough keys for any request, however few are common.
  for (uint64_t keys = keys_;; ++keys) {
    const Key key = random_.Chance(0.02) ? INT64_MIN : static_cast<Key>(random_.Below(keys)) - 10;
    if (taken->insert(key).second) return key;
  }
}

void RedisTest::Start(RedisServer::Arguments settings) {
  store_ = std::make_unique<RedisStore>(std::make_unique<RedisServer>(std::move(settings)));
  ASSERT_TRUE(store_->server().up()) << store_->server().Log();
  store_->Create();
}

void RedisTest::StartPrimary(RedisServer::Arguments settings) {
  settings.insert(settings.end(),
                  {"--port", port_, "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"});
  Start(std::move(settings));
}

RedisServer& RedisTest::AddReplica(RedisServer::Arguments settings) {
  settings.insert(settings.end(), {"--replicaof", "127.0.0.1 " + port_});
  replica_ = std::make_unique<RedisServer>(std::move(settings));
  EXPECT_TRUE(replica_->Await("replication", "master_link_status:up")) << replica_->Log();
  return *replica_;
}

}  // namespace het::testing
