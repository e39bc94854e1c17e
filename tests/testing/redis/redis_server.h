// A redis-server with the module, for one test: its own directory, a Unix socket, no saving unless the test
// asks for it. It ends with the object, and with the test's process in any case.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "het_tf/ext/ps/client/connection.h"

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
  RedisReply() = default;
  explicit RedisReply(const het::RedisReply& reply)
      : kind(reply.kind),
        text(reply.text()),
        integer(reply.integer),
        elements(reply.array.begin(), reply.array.end()) {}

  het::RedisReply::Kind kind = het::RedisReply::kError;
  std::string text = "no answer";  // for strings, status lines and errors
  int64_t integer = 0;
  std::vector<RedisReply> elements;

  bool error() const { return kind == het::RedisReply::kError; }
  bool ok() const { return text == "OK"; }
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
  bool up() const { return connection_ != nullptr; }
  const std::string& dir() const { return dir_; }
  ServerAddress address() const { return ParseServerAddress("unix://" + dir_ + "/socket").value(); }
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
  // Of a partition: a field of HET.STAT; the tables of HET.STAT TABLES, which must be few; a digest, equal
  // for equal partitions.
  std::string Stat(const std::string& field, const std::string& key = "p");
  std::vector<RedisReply> Tables(const std::string& key = "p");
  std::string Digest(const std::string& key = "p");
  // Waits until INFO has this line.
  bool Await(const std::string& section, const std::string& line);
  // Waits until a replica has everything that this server has. WAIT is no answer: it looks at the writes of
  // its own connection alone.
  bool AwaitCopy(RedisServer* replica);

 private:
  Arguments settings_;
  std::string dir_;
  pid_t pid_ = -1;
  std::unique_ptr<RedisConnection> connection_;
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
