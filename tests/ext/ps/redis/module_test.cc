// The module's commands at a real server: they answer as a Partition does, and refusals change nothing.
#include <dlfcn.h>
#include <sys/resource.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/testing/redis/redis_store.h"

namespace het::testing {
namespace {

using RedisModuleTest = RedisTest;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(RedisModuleTest, CreateIsForEverAndKnowsItsNumbers) {
  Start();
  EXPECT_TRUE(Command({"HET.TABLE", "p", "create", "1", "4", "99"}).ok()) << "repeating it is fine";
  const RedisReply other = Command({"HET.TABLE", "p", "CREATE", "2", "4", "98"});
  EXPECT_TRUE(other.StartsWith("HETERR ")) << other.text;
  EXPECT_TRUE(Contains(other.text, "index 1, count 4, hash_seed 99")) << other.text;
  EXPECT_TRUE(Contains(other.text, "index 2, count 4, hash_seed 98")) << other.text;
  EXPECT_TRUE(Contains(Command({"HET.TABLE", "q", "CREATE", "4", "4", "1"}).text, "index is 4"));
  EXPECT_TRUE(Contains(Command({"HET.TABLE", "q", "CREATE", "0", "0", "1"}).text, "count 0"));
  EXPECT_TRUE(Contains(Command({"HET.TABLE", "q", "CREATE", "-1", "4", "1"}).text, "index is '-1'"));
  EXPECT_TRUE(Contains(Command({"HET.TABLE", "q", "CREATE", "0", "4", "1x"}).text, "hash_seed is '1x'"));
  EXPECT_TRUE(Command({"HET.TABLE", "q", "CREATE", "0", "4"}).error());
  EXPECT_TRUE(Command({"HET.TABLE", "q"}).error());
  EXPECT_EQ(Command({"EXISTS", "q"}).integer, 0);
  EXPECT_TRUE(Contains(Command({"HET.TABLE", "p", "MAKE", "x"}).text, "'MAKE'"));
}

TEST_F(RedisModuleTest, TablesComeAndGo) {
  Start();
  const std::string spec = TableSchema::Create(MakeSpec("c", 8, "sgd")).value()->ToJson();
  const std::string drawn = Command({"HET.TABLE", "p", "ADD", spec}).text;
  EXPECT_GT(drawn.size(), 10u) << drawn;
  EXPECT_EQ(Command({"HET.TABLE", "p", "ADD", spec}).text, drawn);
  EXPECT_EQ(Command({"HET.TABLE", "p", "ADD", spec, "12"}).text, drawn) << "the equal table exists";
  const std::string other = TableSchema::Create(MakeSpec("c", 9, "sgd")).value()->ToJson();
  const RedisReply clash = Command({"HET.TABLE", "p", "ADD", other});
  EXPECT_TRUE(clash.StartsWith("HETERR ")) << clash.text;
  EXPECT_TRUE(Contains(clash.text, ": dim is 8, and 9 is wanted. ")) << clash.text;

  for (const std::string& bad : {std::string("{"), std::string("{\"name\":\"x\"}"), std::string("5"),
                                 std::string("{\"nam\n\r\": 1}"), std::string("\0\xff", 2)}) {
    const RedisReply reply = Command({"HET.TABLE", "p", "ADD", bad});
    EXPECT_TRUE(reply.StartsWith("HETERR ")) << reply.text;
  }
  EXPECT_TRUE(Contains(Command({"HET.TABLE", "p", "ADD", spec, "0"}).text, "epoch is '0'"));
  EXPECT_TRUE(Contains(Command({"HET.TABLE", "p", "CLEAR", "c", "x"}).text, "epoch is 'x'"));
  EXPECT_TRUE(Contains(Command({"HET.TABLE", "p", "DROP", "none"}).text, "no table 'none'"));
  EXPECT_TRUE(Contains(Command({"HET.TABLE", "p", "CLEAR", "none"}).text, "no table 'none'"));

  EXPECT_EQ(server().Tables().size(), 3u);
  EXPECT_TRUE(Command({"HET.TABLE", "p", "DROP", "c"}).ok());
  EXPECT_EQ(server().Tables().size(), 2u);
  store().Push(3);
  store().ExpectEqual();
}

TEST_F(RedisModuleTest, ClearDrawsAnEpoch) {
  Start();
  store().Push(3);
  const std::string drawn = Command({"HET.TABLE", "p", "CLEAR", "a"}).text;
  EXPECT_NE(drawn, "1001");
  const Reply old = Decoded(Command({"HET.STEP", "p", Encoded(store().NewRequest(4))}));
  EXPECT_EQ(old.status, FrameStatus::kEpoch);
  EXPECT_EQ(old.last_seq, 3u);
  EXPECT_EQ(Command({"HET.TABLE", "p", "CLEAR", "a", "77"}).text, "77");
  store().model().Find(HashName("a"))->Clear(77);
  store().ExpectEqual();
  store().Push(3);
  store().ExpectEqual();
}

TEST_F(RedisModuleTest, AnswersAsAPartitionDoes) {
  Start();
  uint64_t refreshed = 0;
  for (uint64_t i = 0; i < Scaled(200); ++i) {
    const uint64_t seq = i % 3 == 2 ? 0 : store().model().clients().LastSeq(RedisStore::kClient) + 1;
    const Reply reply = store().Handle(i % 6 == 2 ? "HET.READ" : "HET.STEP", store().NewRequest(seq));
    EXPECT_EQ(reply.status, FrameStatus::kOk) << reply.message;
    refreshed += reply.tables[0].refreshed.size();
  }
  EXPECT_GT(refreshed, 0u);
  store().ExpectEqual();
  EXPECT_EQ(ServerRows(&server(), "p", "1"), store().ModelRows());
}

TEST_F(RedisModuleTest, NoPartitionAndOtherTypes) {
  Start();
  Command({"SET", "text", "1"});
  const std::string frame = Encoded(store().NewRequest(1));
  const std::string read = Encoded(store().NewRequest(0));
  const std::vector<RedisServer::Arguments> commands = {{"HET.STEP", "", frame},
                                                        {"HET.READ", "", read},
                                                        {"HET.SCAN", "", "0"},
                                                        {"HET.LOAD", "", "x"},
                                                        {"HET.STAT", ""},
                                                        {"HET.STAT", "", "TABLES"},
                                                        {"HET.TABLE", "", "ADD", "{}"},
                                                        {"HET.TABLE", "", "DROP", "a"},
                                                        {"HET.TABLE", "", "CLEAR", "a"}};
  for (RedisServer::Arguments command : commands) {
    command[1] = "none";
    EXPECT_EQ(Command(command).text, "HETNOPART no partition at none; create it with HET.TABLE none CREATE")
        << command[0];
    command[1] = "text";
    EXPECT_TRUE(Command(command).StartsWith("WRONGTYPE ")) << command[0];
  }
  EXPECT_TRUE(Command({"HET.TABLE", "text", "CREATE", "0", "1", "1"}).StartsWith("WRONGTYPE "));
  EXPECT_EQ(Command({"EXISTS", "none"}).integer, 0);
  EXPECT_TRUE(Command({"COPY", "p", "other"}).error());
  EXPECT_TRUE(Contains(Command({"HET.READ", "p", frame}).text, "HET.STEP"));
  EXPECT_TRUE(Command({"HET.STEP", "p"}).error());
}

TEST_F(RedisModuleTest, ScanAndLoadMoveRows) {
  Start();
  store().Push(20);
  for (const char* cursor : {"x", "1", "1:", ":1", "1:99999999999", "-1:0", ""}) {
    EXPECT_TRUE(Command({"HET.SCAN", "p", cursor}).StartsWith("HETERR ")) << cursor;
  }
  EXPECT_TRUE(Contains(Command({"HET.SCAN", "p", "0", "COUNT", "0"}).text, "COUNT is '0'"));
  EXPECT_TRUE(Contains(Command({"HET.SCAN", "p", "0", "ROWS", "1"}).text, "'ROWS'"));

  // Loads into a second partition, which has one row and one client.
  ASSERT_TRUE(Command({"HET.TABLE", "q", "CREATE", "1", "4", "99"}).ok());
  for (const RedisReply& table : server().Tables()) {
    Command({"HET.TABLE", "q", "ADD", table.elements[1].text, table.elements[2].text});
  }
  EXPECT_EQ(Command({"HET.SCAN", "q", "0"}).elements[1].text, "") << "no rows, no chunk";
  ASSERT_EQ(Decoded(Command({"HET.STEP", "q", Encoded(store().NewRequest(1, 2))})).status, FrameStatus::kOk);
  EXPECT_EQ(server().Stat("clients", "q"), "1");
  RedisServer::Arguments load = {"HET.LOAD", "q"};
  std::string cursor = "0";
  do {
    const RedisReply reply = Command({"HET.SCAN", "p", cursor, "COUNT", "9"});
    cursor = reply.elements[0].text;
    load.push_back(reply.elements[1].text);
  } while (cursor != "0");
  EXPECT_GT(load.size(), 10u);
  const auto all = static_cast<int64_t>(store().ModelRows().size());
  EXPECT_EQ(Command(load).integer, all);
  EXPECT_EQ(Command(load).integer, all) << "again, over the same rows";
  EXPECT_EQ(server().Stat("clients", "q"), "0");
  Rows rows = ServerRows(&server(), "q");
  for (const auto& [key, row] : store().ModelRows()) EXPECT_EQ(rows[key], row);

  const std::string before = server().Digest("q");
  for (size_t size = 0; size < load[2].size(); ++size) {
    ASSERT_TRUE(Command({"HET.LOAD", "q", load[2].substr(0, size)}).StartsWith("HETERR chunk 1 of 1"));
  }
  Command({"HET.TABLE", "r", "CREATE", "0", "4", "99"});
  EXPECT_TRUE(Contains(Command({"HET.LOAD", "r", load[2]}).text, "create it first"));
  EXPECT_EQ(server().Digest("q"), before);
}

TEST_F(RedisModuleTest, MaxmemoryRefusesPushesAndNothingElse) {
  Start();
  store().Push(5);
  const std::string before = server().Digest();
  ASSERT_TRUE(Command({"CONFIG", "SET", "maxmemory", "1"}).ok());
  const RedisReply refused = Command({"HET.STEP", "p", Encoded(store().NewRequest(6))});
  EXPECT_TRUE(refused.StartsWith("OOM ")) << refused.text;
  EXPECT_TRUE(Command({"HET.TABLE", "q", "CREATE", "0", "1", "1"}).StartsWith("OOM "));
  EXPECT_TRUE(Command({"HET.TABLE", "p", "ADD", TableSchema::Create(MakeSpec("c", 8)).value()->ToJson()})
                  .StartsWith("OOM "));
  EXPECT_EQ(server().Digest(), before);
  store().ExpectEqual();
  ASSERT_TRUE(Command({"HET.TABLE", "p", "DROP", "b"}).ok()) << "a full store can be emptied";
  ASSERT_TRUE(Command({"CONFIG", "SET", "maxmemory", "0"}).ok());
}

TEST_F(RedisModuleTest, MaxmemorySeesTheRows) {
  Start();
  store().set_keys(1u << 30);
  const int64_t memory = server().Info("memory", "used_memory");
  const int64_t bytes = server().Info("het", "het_bytes");
  ASSERT_EQ(Decoded(Command({"HET.STEP", "p", Encoded(store().NewRequest(1, 100000, 0))})).status,
            FrameStatus::kOk);
  const int64_t grown = server().Info("het", "het_bytes") - bytes;
  EXPECT_GT(grown, 200000 * 20);
  EXPECT_GE(server().Info("memory", "used_memory") - memory, grown * 9 / 10);
  EXPECT_GE(Command({"MEMORY", "USAGE", "p"}).integer, grown);
  EXPECT_EQ(Command({"UNLINK", "p"}).integer, 1);
  EXPECT_TRUE(server().Await("het", "het_partitions:0"));
}

TEST_F(RedisModuleTest, AServerThatEvictsIsRefused) {
  RedisServer evicts({"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"});
  EXPECT_FALSE(evicts.up());
  EXPECT_TRUE(Contains(evicts.Log(), "Remedy: maxmemory-policy noeviction")) << evicts.Log();
  RedisServer unlimited({"--maxmemory-policy", "allkeys-lru"});
  EXPECT_TRUE(unlimited.up()) << "without maxmemory there is no eviction";
  RedisServer refuses({"--maxmemory", "100mb"});
  ASSERT_TRUE(refuses.up());
  EXPECT_FALSE(Contains(refuses.Log(), "would evict"));
  EXPECT_TRUE(Contains(refuses.Log(), "proto-max-bulk-len 4gb"));
  refuses.Command({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"});
  EXPECT_TRUE(Contains(refuses.Log(), "would evict")) << "logged after a later change";
  RedisServer argument({"--proto-max-bulk-len", "4gb", "--client-output-buffer-limit", "replica 0 0 0",
                        "--repl-backlog-size", "1gb"});
  ASSERT_TRUE(argument.up());
  EXPECT_FALSE(Contains(argument.Log(), "Remedy")) << argument.Log();
}

// The server's memory ends during a push: the frame reports it, the row is unchanged, and the server lives.
TEST_F(RedisModuleTest, OutOfMemoryIsAnsweredByAFrame) {
  Start();
  store().AddTable(MakeSpec("wide", 4096, "sgd"), 1003);
  store().Push(1);
  const std::string frame = Encoded(store().NewRequest(2, 2000, 1));  // its push part is copied
  const std::string before = server().Digest();
  // The server already has its own memory for this frame, after one of equal size.
  if (server().Info("server", "valkey_version") >= 0)
    GTEST_SKIP() << "Valkey allocates a new buffer for a command, and exits when that fails";
  Command({"ECHO", frame});
  std::ifstream status("/proc/" + std::to_string(server().pid()) + "/statm");
  size_t pages = 0;
  status >> pages;
  rlimit limit{pages * 4096 + frame.size() / 2, RLIM_INFINITY};
  ASSERT_EQ(prlimit(server().pid(), RLIMIT_AS, &limit, nullptr), 0);
  const Reply refused = Decoded(Command({"HET.STEP", "p", frame}));
  EXPECT_EQ(refused.status, FrameStatus::kOutOfMemory) << server().Log();
  EXPECT_EQ(refused.last_seq, 1u);
  EXPECT_EQ(server().Digest(), before);
  limit.rlim_cur = RLIM_INFINITY;
  ASSERT_EQ(prlimit(server().pid(), RLIMIT_AS, &limit, nullptr), 0);
  EXPECT_EQ(Decoded(Command({"HET.STEP", "p", frame})).status, FrameStatus::kOk);
}

// A server that lacks one function: the module names it, and does nothing else.
std::string g_missing;
std::string g_log;
void FakeLog(void*, const char*, const char* format, ...) {
  char line[1000];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  g_log += line;
}
void FakeFunction() { std::abort(); }
int FakeGetApi(const char* name, void* function) {
  if (name == g_missing) return 1;
  void* found = reinterpret_cast<void*>(
      std::strcmp(name, "RedisModule_Log") == 0 ? reinterpret_cast<void (*)()>(&FakeLog) : &FakeFunction);
  std::memcpy(function, &found, sizeof(found));
  return 0;
}

TEST_F(RedisModuleTest, OldServerLearnsWhatItLacks) {
  // The library stays loaded: its libstdc++ keeps memory until the end, which would look like a leak.
  void* module = dlopen(HET_REDIS_MODULE, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  ASSERT_NE(module, nullptr) << dlerror();
  auto* load = reinterpret_cast<int (*)(void*, void**, int)>(dlsym(module, "RedisModule_OnLoad"));
  ASSERT_NE(load, nullptr);
  void* context[1] = {reinterpret_cast<void*>(&FakeGetApi)};
  g_missing = "RedisModule_ReplyWithMap";
  EXPECT_EQ(load(context, nullptr, 0), 1);
  EXPECT_TRUE(Contains(g_log, "no RedisModule_ReplyWithMap")) << g_log;
  EXPECT_TRUE(Contains(g_log, "Redis 7.0 or Valkey 7.2")) << g_log;
  dlclose(module);
}

TEST_F(RedisModuleTest, InfoCounts) {
  Start();
  store().Push(4);
  const std::string read = Encoded(store().NewRequest(0));
  const RedisReply reply = Command({"HET.READ", "p", read});
  Command({"HET.READ", "p", "nonsense"});
  EXPECT_EQ(server().Info("het", "het_partitions"), 1);
  EXPECT_EQ(server().Info("het", "het_tables"), 2);
  EXPECT_EQ(server().Info("het", "het_rows"), static_cast<int64_t>(store().ModelRows().size()));
  EXPECT_EQ(server().Info("het", "het_clients"), 1);
  EXPECT_EQ(server().Info("het", "het_frames"), 6);
  EXPECT_EQ(server().Info("het", "het_pushes_applied"), 4);
  EXPECT_EQ(server().Info("het", "het_refused_bad_frame"), 1);
  EXPECT_GT(server().Info("het", "het_rows_pulled"), 0);
  EXPECT_GT(server().Info("het", "het_bytes_in"), static_cast<int64_t>(read.size()));
  EXPECT_GT(server().Info("het", "het_bytes_out"), static_cast<int64_t>(reply.text.size()));
  EXPECT_GT(server().Info("het", "het_busy_us"), 0);
}

}  // namespace
}  // namespace het::testing
