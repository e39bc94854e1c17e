// A redis-server with the module, for one test: its own directory, a Unix socket, no saving unless the test
// asks for it. It ends with the object, and with the test's process in any case.
#pragma once

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace het::testing {

// Waits at most five minutes until the condition holds.
template <typename Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < 30000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// A reply of the server.
struct RedisReply {
  int type = REDIS_REPLY_ERROR;
  std::string text = "no answer";  // for strings, status lines and errors
  int64_t integer = 0;
  std::vector<RedisReply> elements;

  bool error() const { return type == REDIS_REPLY_ERROR; }
  bool ok() const { return type == REDIS_REPLY_STATUS && text == "OK"; }
  bool StartsWith(std::string_view prefix) const { return text.compare(0, prefix.size(), prefix) == 0; }
};

class RedisServer {
 public:
  using Arguments = std::vector<std::string>;

  // Returns why a server with the module cannot run here; "" if it can.
  static std::string Missing();
  // HET_TEST_SERVER in the environment chooses another program, such as valkey-server.
  static std::string Program();
  // HET_TEST_MODULE in the environment chooses the het.so of another build.
  static std::string Module();
  // Settings: a push is in the log when it is answered.
  static Arguments Logged() { return {"--appendonly", "yes", "--appendfsync", "always"}; }
  // A free TCP port.
  static int FreePort();

  // `settings` override the defaults: {"--appendonly", "yes"}.
  explicit RedisServer(Arguments settings = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  // Whether it runs and answers.
  bool up() const { return context_ != nullptr; }
  const std::string& dir() const { return dir_; }
  std::string address() const { return "unix://" + dir_ + "/socket"; }
  pid_t pid() const { return pid_; }
  std::string Log() const;
  // The part of the append-only file whose name has this in it, such as ".incr.".
  std::string LogPath(const std::string& part) const;

  // Returns true when the server answers, false if it ended instead.
  bool Start();
  // kill -9.
  void Kill();
  bool Restart();

  RedisReply Command(const Arguments& args);
  // Returns a number from INFO; -1 if it is missing.
  int64_t Info(const std::string& section, const std::string& field);
  // Waits until INFO has this line.
  bool Await(const std::string& section, const std::string& line);
  // Waits until a replica has everything that this server has. WAIT is no answer: it looks at the writes of
  // its own connection alone.
  bool AwaitCopy(RedisServer* replica);

 private:
  struct Disconnect {
    void operator()(redisContext* context) const { redisFree(context); }
  };

  static RedisReply Copy(const redisReply& reply);

  Arguments settings_;
  std::string dir_;
  pid_t pid_ = -1;
  std::unique_ptr<redisContext, Disconnect> context_;
};

// A test that needs a server, also as another test's base; skipped, with the reason, if none can run.
template <typename Base = ::testing::Test>
class NeedsRedis : public Base {
 protected:
  void SetUp() override {
    if (const std::string missing = RedisServer::Missing(); !missing.empty()) GTEST_SKIP() << missing;
    Base::SetUp();
  }
};

}  // namespace het::testing
