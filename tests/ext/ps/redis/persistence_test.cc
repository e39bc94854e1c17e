// A partition outlives its process, through dump files, append-only files and replicas: with the same rows,
// clocks, tables and last_seq, and a new incarnation.

#include "tests/testing/redis/redis_store.h"
#include "tests/testing/temp_folder.h"

namespace het::testing {
namespace {

class RedisPersistenceTest : public RedisTest {
 protected:
  // Restarts the server by `restart`; the content must be the same afterwards.
  template <typename Fn>
  void ExpectToComeBack(Fn restart) {
    store().Push(20);
    store().ExpectEqual();
    const std::string digest = server().Digest();
    const std::string incarnation = server().Stat("incarnation");
    restart();
    ASSERT_TRUE(server().up()) << server().Log();
    store().ExpectEqual();
    EXPECT_EQ(server().Digest(), digest);
    EXPECT_NE(server().Stat("incarnation"), incarnation);
    EXPECT_EQ(server().Stat("hash_seed"), "99");
    store().Push(5);
    store().ExpectEqual();
  }
  // Rows of 32 MB, so that a partition takes several chunks.
  void Enlarge() {
    store().AddTable(MakeSpec("wide", 1024, "sgd"), 1003);
    store().set_keys(1u << 30);
    for (int i = 0; i < 4; ++i) {
      store().Handle("HET.STEP",
                     store().NewRequest(store().model().clients().LastSeq(RedisStore::kClient) + 1, 2000, 0));
    }
    store().set_keys(60);
  }
};

// The entries of tables, by name.
std::map<std::string, std::string> Epochs(RedisServer* server) {
  std::map<std::string, std::string> epochs;
  for (const RedisReply& table : server->Tables()) epochs[table.elements[0].text] = table.elements[2].text;
  return epochs;
}

TEST_F(RedisPersistenceTest, SaveAndRestart) {
  Start();
  Enlarge();
  ExpectToComeBack([&] {
    ASSERT_TRUE(Command({"SAVE"}).ok());
    server().Restart();
  });
}

// As MIGRATE does.
TEST_F(RedisPersistenceTest, DumpAndRestore) {
  Start();
  Enlarge();
  ExpectToComeBack([&] {
    const std::string dump = Command({"DUMP", "p"}).text;
    ASSERT_EQ(Command({"UNLINK", "p"}).integer, 1);
    ASSERT_TRUE(Command({"RESTORE", "p", "0", dump}).ok());
  });
  ASSERT_TRUE(Command({"RESTORE", "q", "0", Command({"DUMP", "p"}).text}).ok());
  EXPECT_EQ(server().Digest("q"), server().Digest());
  EXPECT_NE(server().Stat("incarnation", "q"), server().Stat("incarnation")) << "a new one at each start";
}

TEST_F(RedisPersistenceTest, LogKillAndRestart) {
  Start(RedisServer::Logged());
  ExpectToComeBack([&] {
    Command({"HET.STEP", "p", Encoded(store().NewRequest(5))});
    Command({"HET.STEP", "p", Encoded(store().NewRequest(50))});
    Command({"HET.READ", "p", Encoded(store().NewRequest(0))});
    server().Restart();
  });
}

TEST_F(RedisPersistenceTest, TheLogHoldsPushPartsAlone) {
  Start(RedisServer::Logged());  // else a write may wait for a slow fsync
  store().Push(10);
  Request reads_much = store().NewRequest(11, 1, 500);
  reads_much.after_seq = 10;
  store().Handle("HET.STEP", reads_much);
  store().Handle("HET.STEP", store().NewRequest(3));
  store().Handle("HET.STEP", store().NewRequest(0));
  store().Handle("HET.STEP", store().NewRequest(99));
  const std::string log = ReadFile(server().LogPath(".incr."));
  const std::string begin = "$8\r\nHET.STEP\r\n$1\r\np\r\n$";
  std::vector<uint64_t> seqs;
  for (size_t at = log.find(begin); at != std::string::npos; at = log.find(begin, at)) {
    at += begin.size();
    const size_t size = std::stoul(log.substr(at));
    at = log.find("\r\n", at) + 2;
    Request q;
    ASSERT_TRUE(Decode(View(log.substr(at, size)), &q).ok());
    seqs.push_back(q.seq);
    EXPECT_TRUE(q.client == RedisStore::kClient);
    EXPECT_LE(q.after_seq, q.seq);
    EpochDigest epochs(0);
    // In the frame, or behind it if the frame is the client's own.
    uint64_t time = q.time;
    if (const size_t behind = at + size + 2; log.compare(behind, 1, "$") == 0)
      time = std::stoul(log.substr(log.find("\r\n", behind) + 2));
    EXPECT_NEAR(time, UnixTime(), 60) << "the server's, not the client's";
    for (const TableRequest& t : q.tables) {
      epochs.Add(t.table, store().model().Find(t.table)->epoch());
      EXPECT_FALSE(t.push_keys.empty());
      EXPECT_TRUE(t.check_keys.empty());
      EXPECT_TRUE(t.fetch_keys.empty());
    }
    EXPECT_EQ(q.digest, epochs.value(q.request_id));
    EXPECT_FALSE(q.knows_inc) << "a copy has another incarnation";
  }
  EXPECT_EQ(seqs, std::vector<uint64_t>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST_F(RedisPersistenceTest, TablesAndLoadsAreInTheLog) {
  Start(RedisServer::Logged());
  store().Push(5);
  const std::string chunk =
      Command({"HET.SCAN", "p", std::to_string(HashName("a")) + ":0"}).elements.at(1).text;
  const std::string drawn =
      Command({"HET.TABLE", "p", "ADD", "{\"name\":\"c\",\"dim\":4,\"optimizer\":{\"name\":\"sgd\"}}"}).text;
  const std::string cleared = Command({"HET.TABLE", "p", "CLEAR", "a"}).text;
  Command({"HET.TABLE", "p", "DROP", "b"});
  const RedisReply half = Command({"HET.LOAD", "p", chunk, "nonsense"});
  EXPECT_EQ(half.text.find("HETERR chunk 2 of 2"), 0u) << half.text;
  const std::string digest = server().Digest();
  const std::map<std::string, std::string> epochs = Epochs(&server());
  server().Restart();
  EXPECT_EQ(server().Digest(), digest);
  EXPECT_EQ(Epochs(&server()), epochs);
  ASSERT_EQ(epochs.size(), 2u);
  EXPECT_EQ(epochs.at("c"), drawn);
  EXPECT_NE(epochs.at("a"), cleared) << "rows were loaded later";
}

// Loaded rows give their table a new epoch, equal in every copy; assigned rows do not.
TEST_F(RedisPersistenceTest, TheEpochOfLoadedRowsTravels) {
  StartPrimary(RedisServer::Logged());
  store().Push(5);
  RedisServer& replica = AddReplica();
  const std::map<std::string, std::string> before = Epochs(&server());
  const TableSchema& schema = store().model().Find(HashName("a"))->schema();
  const std::vector<het::Key> keys = {3};
  const std::vector<float> rows(schema.row_floats(), 1);
  Bytes set;
  EncodeSet(schema, keys, rows.data(), &set);
  EXPECT_EQ(Command({"HET.LOAD", "p", std::string(set.begin(), set.end())}).integer, 1);
  EXPECT_EQ(Epochs(&server()), before);
  const std::string chunk =
      Command({"HET.SCAN", "p", std::to_string(HashName("a")) + ":0"}).elements.at(1).text;
  EXPECT_GT(Command({"HET.LOAD", "p", chunk}).integer, 0);
  const std::map<std::string, std::string> after = Epochs(&server());
  EXPECT_NE(after.at("a"), before.at("a"));
  EXPECT_EQ(after.at("b"), before.at("b"));
  ASSERT_TRUE(server().AwaitCopy(&replica)) << replica.Log();
  EXPECT_EQ(Epochs(&replica), after);
  server().Restart();
  EXPECT_EQ(Epochs(&server()), after);
}

class RedisRewriteTest : public RedisPersistenceTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(RedisRewriteTest, RewriteTheLogAndRestart) {
  Start({"--appendonly", "yes", "--aof-use-rdb-preamble", GetParam()});
  Enlarge();
  ExpectToComeBack([&] {
    ASSERT_TRUE(server().Await("persistence", "aof_rewrite_in_progress:0"));
    ASSERT_FALSE(Command({"BGREWRITEAOF"}).error());
    ASSERT_TRUE(server().Await("persistence", "aof_rewrite_in_progress:0"));
    ASSERT_TRUE(server().Await("persistence", "aof_last_bgrewrite_status:ok"));
    ASSERT_TRUE(Command({"CONFIG", "SET", "appendfsync", "always"}).ok());
    server().Kill();
    // No command in the rewritten log is larger than a chunk.
    const std::string base = ReadFile(server().LogPath(".base."));
    for (size_t at = base.find("HET.LOAD\r\n$1\r\np\r\n$"); at != std::string::npos;
         at = base.find("HET.LOAD\r\n$1\r\np\r\n$", at + 1)) {
      EXPECT_LE(std::stoul(base.substr(at + 18)), kMaxChunkBytes);
    }
    EXPECT_GT(base.size(), 30u << 20);
    server().Start();
  });
  server().Restart();
  store().ExpectEqual();
}

INSTANTIATE_TEST_SUITE_P(Preamble, RedisRewriteTest, ::testing::Values("yes", "no"));

TEST_F(RedisPersistenceTest, AReplicaThatCannotFollowSaysSo) {
  StartPrimary();
  RedisServer& replica = AddReplica({"--replica-read-only", "no"});
  replica.Command({"HET.TABLE", "p", "CLEAR", "a"});
  EXPECT_EQ(replica.Log().find("not equal"), std::string::npos);
  store().Push(1);
  ASSERT_TRUE(server().AwaitCopy(&replica)) << replica.Log();
  EXPECT_NE(replica.Log().find("a replicated push was not applied"), std::string::npos) << replica.Log();
}

TEST_F(RedisPersistenceTest, AReplicaIsEqual) {
  StartPrimary();
  store().Push(10);
  RedisServer& replica = AddReplica();
  store().ExpectEqual(&replica);
  EXPECT_NE(replica.Stat("incarnation"), server().Stat("incarnation"));
  const uint64_t before = store().pushes_applied();
  const int64_t pulled = replica.Info("het", "het_rows_pulled");
  store().Push(20);
  Request reads_much = store().NewRequest(31, 1, 500);
  store().Handle("HET.STEP", reads_much);
  store().Handle("HET.STEP", store().NewRequest(7));
  store().Handle("HET.STEP", store().NewRequest(99));
  store().Handle("HET.READ", store().NewRequest(0));
  const std::string epoch = Command({"HET.TABLE", "p", "CLEAR", "b"}).text;
  store().model().Find(HashName("b"))->Clear(std::stoull(epoch));
  store().Push(3);
  ASSERT_TRUE(server().AwaitCopy(&replica)) << replica.Log();
  EXPECT_EQ(replica.Info("het", "het_frames"), static_cast<int64_t>(store().pushes_applied() - before) + 1)
      << "one read by ExpectEqual";
  EXPECT_EQ(replica.Info("het", "het_pushes_applied"),
            static_cast<int64_t>(store().pushes_applied() - before));
  EXPECT_EQ(replica.Info("het", "het_rows_pulled"), pulled) << "no checks and no fetches";
  EXPECT_EQ(replica.Info("het", "het_refused_gap"), 0);
  store().ExpectEqual();
  store().ExpectEqual(&replica);
  EXPECT_EQ(replica.Digest(), server().Digest());
  EXPECT_TRUE(replica.Command({"HET.STEP", "p", Encoded(store().NewRequest(0))}).StartsWith("READONLY"));
  // After promotion it continues in the primary's state.
  server().Kill();
  ASSERT_TRUE(replica.Command({"REPLICAOF", "NO", "ONE"}).ok());
  const Reply next = Decoded(replica.Command({"HET.STEP", "p", Encoded(store().NewRequest(35))}));
  EXPECT_EQ(next.status, FrameStatus::kOk);
  EXPECT_TRUE(next.same_seq);
}

}  // namespace
}  // namespace het::testing
