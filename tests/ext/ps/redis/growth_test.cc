// Limits of tables at a real server: only the primary sweeps, and every copy follows; files of the previous
// version; loads that no reader may see half of.
#include <chrono>
#include <thread>

#include "tests/testing/redis/redis_store.h"
#include "tests/testing/requests.h"

namespace het::testing {
namespace {

class RedisGrowthTest : public RedisTest {
 protected:
  using Arguments = RedisServer::Arguments;

  // Adds the table "g" with these limits at the server only.
  RedisReply Limit(const std::string& limits) {
    const std::string spec = R"({"name":"g","dim":2,"optimizer":{"name":"sgd"},"limits":)" + limits + "}";
    return Command({"HET.TABLE", "p", "ADD", spec, "77"});
  }
  // Pushes one tick to each of these keys of "g".
  void Push(Key first, Key count) {
    Request q = RequestOf({1, 4, 99}, {5, 6}, ++seq_);
    q.time = 12;  // the server ignores a client's time
    AddPush(&AddTable(&q, *TableSchema::Create(MakeSpec("g", 2, "sgd")).value(), 77),
            Range(first, static_cast<size_t>(count)));
    const Reply reply = Decoded(Command({"HET.STEP", "p", Encoded(q)}));
    ASSERT_EQ(reply.status, FrameStatus::kOk) << reply.message;
  }
  int64_t RowsOf(RedisServer* at) {
    for (const RedisReply& table : at->Tables()) {
      if (table.elements.at(0).text == "g") return table.elements.at(3).integer;
    }
    return -1;
  }
  int64_t RowsOf() { return RowsOf(&server()); }
  // Waits for the timer.
  bool AwaitRows(int64_t rows) {
    return Eventually([&] { return RowsOf() == rows; });
  }

 private:
  uint64_t seq_ = 0;
};

TEST_F(RedisGrowthTest, LimitsAreShownAndChanged) {
  Start();
  EXPECT_EQ(Limit(R"({"ttl":0})").text, "77");
  EXPECT_EQ(Limit(R"({"ttl":500,"max_rows":9000,"min_count":2,"min_count_ttl":60})").text, "77");
  std::string text;
  for (const RedisReply& table : server().Tables()) text += table.elements.at(1).text;
  EXPECT_NE(text.find(R"("limits":{"max_rows":9000,"min_count":2,"min_count_ttl":60,"since":)"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find(R"("since":0,"ttl":500)"), std::string::npos) << "since now";
  const std::string before = server().Digest();
  EXPECT_EQ(Command({"HET.TABLE", "p", "ADD", R"({"name":"g","dim":2,"optimizer":{"name":"sgd"}})"}).text,
            "77");
  EXPECT_EQ(server().Digest(), before) << "a spec without limits leaves them";
  for (const char* bad :
       {R"({"ttl":-1})", R"({"ttl":4294967296})", R"({"min_count":65536})", R"({"max_row":1})",
        R"({"ttl":"1"})", R"({"min_count_ttl":0})", R"({"ttl":9,"min_count":1,"min_count_ttl":9})", "5"}) {
    const RedisReply reply = Limit(bad);
    EXPECT_TRUE(reply.StartsWith("HETERR ")) << bad << ": " << reply.text;
  }
  EXPECT_EQ(server().Digest(), before);
}

// Rows are swept by pushes, and by the timer without pushes; replicas and the log follow and never sweep.
TEST_F(RedisGrowthTest, SweptRowsAreRemovedFromEveryCopy) {
  StartPrimary(RedisServer::Logged());
  RedisServer& replica = AddReplica();
  ASSERT_EQ(Limit(R"({"max_rows":400})").text, "77");  // a quarter of it here
  Push(0, 60);
  Push(60, 60);
  EXPECT_EQ(RowsOf(), 100);
  EXPECT_EQ(server().Info("het", "het_swept_max_rows"), 20);
  ASSERT_EQ(Limit(R"({"ttl":1})").text, "77");
  ASSERT_TRUE(AwaitRows(0)) << RowsOf() << server().Log();
  EXPECT_EQ(server().Info("het", "het_swept_ttl"), 100);
  EXPECT_GT(server().Info("het", "het_sweep_longest_us"), 0);
  Push(1000, 3);  // starts at the clock floor
  ASSERT_EQ(Limit(R"({"min_count":2,"min_count_ttl":1})").text, "77");
  Push(1000, 1);
  ASSERT_TRUE(AwaitRows(1)) << RowsOf();
  EXPECT_EQ(server().Info("het", "het_swept_min_count"), 2);

  ASSERT_TRUE(server().AwaitCopy(&replica)) << replica.Log();
  EXPECT_EQ(RowsOf(&replica), 1);
  EXPECT_EQ(replica.Digest(), server().Digest());
  EXPECT_EQ(replica.Info("het", "het_swept_ttl"), 0) << "a replica only replays removals";
  EXPECT_EQ(replica.Info("het", "het_rows_removed"), 122);
  EXPECT_EQ(replica.Log().find("not equal"), std::string::npos);
  const std::string digest = server().Digest();
  server().Restart();
  EXPECT_EQ(server().Digest(), digest);
  EXPECT_EQ(server().Info("het", "het_rows_removed"), 122) << "the log was replayed";
}

// A copy keeps expired rows until its primary removes them.
TEST_F(RedisGrowthTest, ACopyDoesNotSweep) {
  StartPrimary();
  RedisServer& replica = AddReplica();
  ASSERT_EQ(Limit(R"({"ttl":2})").text, "77");
  Push(0, 50);
  ASSERT_TRUE(server().AwaitCopy(&replica)) << replica.Log();
  server().Kill();  // before the rows expire
  std::this_thread::sleep_for(std::chrono::milliseconds(3500));
  EXPECT_EQ(RowsOf(&replica), 50);
  ASSERT_TRUE(replica.Command({"REPLICAOF", "NO", "ONE"}).ok());
  EXPECT_TRUE(replica.Await("het", "het_rows:0")) << "after promotion it sweeps";
}

TEST_F(RedisGrowthTest, AssignedRowsHaveTheServersTime) {
  Start(RedisServer::Logged());
  ASSERT_EQ(Limit(R"({"ttl":1000})").text, "77");
  TableSpec spec = MakeSpec("g", 2, "sgd");
  const Schema schema = TableSchema::Create(spec).value();
  const std::vector<Key> keys = {1, 2};
  const std::vector<float> rows = {1, 2, 3, 4};
  Bytes chunk;
  EncodeSet(*schema, keys, rows.data(), &chunk);
  ASSERT_EQ(Command({"HET.LOAD", "p", ToText(chunk)}).integer, 2);
  RowBatch scanned(*schema, 4096);
  const std::string page =
      Command({"HET.SCAN", "p", std::to_string(schema->id()) + ":0"}).elements.at(1).text;
  ASSERT_TRUE(DecodeRows(View(page), *schema, &scanned).ok());
  ASSERT_EQ(scanned.size(), 2u);
  EXPECT_NEAR(scanned.last_used()[0], UnixTime(), 60);
  EXPECT_EQ(scanned.counts()[0], 1u);
  const std::string digest = server().Digest();
  server().Restart();
  EXPECT_EQ(server().Digest(), digest) << "the time is in the log";
}

TEST_F(RedisGrowthTest, ReadersNeverSeeAPartialLoad) {
  StartPrimary(RedisServer::Logged());
  RedisServer& replica = AddReplica();
  store().Push(3);
  const std::string step = Encoded(store().NewRequest(4));
  const std::string read = Encoded(store().NewRequest(0));
  EXPECT_EQ(server().Stat("loading"), "");
  ASSERT_TRUE(Command({"HET.TABLE", "p", "BEGIN", "job-7", "300"}).ok());
  EXPECT_EQ(server().Stat("loading").find("job-7 "), 0u);
  for (const Arguments& command : {Arguments{"HET.STEP", "p", step}, Arguments{"HET.READ", "p", read},
                                   Arguments{"HET.SCAN", "p", "0"}}) {
    const RedisReply refused = Command(command);
    EXPECT_TRUE(refused.StartsWith("LOADING p is being loaded by job-7 since ")) << refused.text;
  }
  EXPECT_EQ(server().Info("het", "het_refused_loading"), 2);
  const RedisReply other = Command({"HET.TABLE", "p", "BEGIN", "job-8"});
  EXPECT_TRUE(other.StartsWith("HETERR job-7 loads since ")) << other.text;
  EXPECT_TRUE(Command({"HET.TABLE", "p", "COMMIT", "job-8"}).StartsWith("HETERR job-8 does not load p"));
  ASSERT_TRUE(Command({"HET.TABLE", "p", "BEGIN", "job-7", "300"}).ok()) << "a renewal";
  ASSERT_TRUE(server().AwaitCopy(&replica)) << replica.Log();
  EXPECT_TRUE(replica.Command({"HET.READ", "p", read}).StartsWith("LOADING ")) << "a replica too";
  EXPECT_EQ(replica.Digest(), server().Digest());
  server().Restart();
  EXPECT_TRUE(Command({"HET.READ", "p", read}).StartsWith("LOADING ")) << "after a restart too";
  ASSERT_TRUE(Command({"HET.TABLE", "p", "COMMIT", "job-7"}).ok());
  EXPECT_EQ(Decoded(Command({"HET.READ", "p", read})).status, FrameStatus::kOk) << "nothing was loaded";
  EXPECT_EQ(server().Stat("loading"), "");
  EXPECT_TRUE(Command({"HET.TABLE", "p", "COMMIT", "job-7"}).StartsWith("HETERR "));
  for (const char* bad : {"0", "x", "86401"}) {
    EXPECT_TRUE(Command({"HET.TABLE", "p", "BEGIN", "job-7", bad}).StartsWith("HETERR ")) << bad;
  }
  EXPECT_TRUE(Command({"HET.TABLE", "p", "BEGIN", ""}).StartsWith("HETERR "));
}

TEST_F(RedisGrowthTest, MarkOfADeadLoaderExpires) {
  Start();
  const std::string read = Encoded(store().NewRequest(0));
  ASSERT_TRUE(Command({"HET.TABLE", "p", "BEGIN", "job-7", "1"}).ok());
  EXPECT_TRUE(Eventually([&] { return !Command({"HET.READ", "p", read}).StartsWith("LOADING "); }));
  EXPECT_TRUE(Eventually([&] { return server().Stat("loading").empty(); }));
  EXPECT_NE(server().Log().find("job-7 did not end its load of p in time"), std::string::npos)
      << server().Log();
  EXPECT_TRUE(Command({"HET.TABLE", "p", "COMMIT", "job-7"}).StartsWith("HETERR "));
  ASSERT_TRUE(Command({"HET.TABLE", "p", "BEGIN", "job-8"}).ok());
  ASSERT_TRUE(Command({"HET.TABLE", "p", "ABORT", "job-8"}).ok());
  EXPECT_NE(server().Log().find("job-8 gave up loading p"), std::string::npos);
}

TEST_F(RedisGrowthTest, BadSettingsAndLargeKeysAreLoggedOnce) {
  Start({"--appendonly", "yes", "--aof-use-rdb-preamble", "no", "--proto-max-bulk-len", "2mb",
         "--client-query-buffer-limit", "64mb"});
  for (const char* remedy : {"proto-max-bulk-len 4gb", "client-query-buffer-limit 4gb",
                             "repl-backlog-size 1gb", "aof-use-rdb-preamble yes", "replica 0 0 0"}) {
    EXPECT_NE(server().Log().find(remedy), std::string::npos) << remedy << "\n" << server().Log();
  }
  ASSERT_EQ(Limit(R"({"ttl":0})").text, "77");
  Push(0, 20000);
  auto logged = [&](const std::string& what) {
    const std::string log = server().Log();
    size_t times = 0;
    for (size_t at = log.find(what); at != std::string::npos; at = log.find(what, at + 1)) ++times;
    return times;
  };
  const std::string large = "moving it to another shard blocks";
  const std::string too_large = "cannot be moved to another shard";
  EXPECT_TRUE(Eventually([&] { return logged(large) > 0; }));
  EXPECT_EQ(logged(too_large), 0u);
  Push(20000, 60000);
  EXPECT_TRUE(Eventually([&] { return logged(too_large) > 0; }));
  const int64_t sweeps = server().Info("het", "het_sweeps");
  EXPECT_TRUE(Eventually([&] { return server().Info("het", "het_sweeps") >= sweeps + 3; }));
  EXPECT_EQ(logged(large), 1u);
  EXPECT_EQ(logged(too_large), 1u);
}

}  // namespace
}  // namespace het::testing
