// Servers without cluster mode that change roles, Sentinels, logins that change, and what a server says of
// itself.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "het_tf/core/base/interrupt.h"
#include "tests/ext/ps/client/transport_fixture.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Bulk(const std::string& text) { return "$" + std::to_string(text.size()) + "\r\n" + text; }

// As servers answer HELLO: a list of names and values, the last of which are the modules.
std::string Hello(const std::string& mode, bool module = true) {
  return "*4\r\n" + Bulk("mode") + "\r\n" + Bulk(mode) + "\r\n" + Bulk("modules") + "\r\n" +
         (module ? "*1\r\n*2\r\n" + Bulk("name") + "\r\n" + Bulk("het") : "*0");
}
std::string ReplicaOf(const std::string& host, int port) {
  return "*3\r\n" + Bulk("slave") + "\r\n" + Bulk(host) + "\r\n:" + std::to_string(port);
}

class RolesTest : public TransportTest {
 protected:
  // A replica, whose primary is elsewhere.
  static FakeServer::Script Replica() {
    return [](const FakeServer::Command& command) -> std::string {
      if (command.words[0] == "ROLE") return ReplicaOf("10.0.0.9", 7000);
      return command.frame() ? "-READONLY You can't write against a read only replica." : "";
    };
  }
  static Status Ask(const ServerAddress& address) { return RedisCluster(address).Refresh(5); }
  static Status AskWith(const FakeServer::Script& script) {
    LocalService service(1, 7);
    FakeServer server(&service);
    server.SetScript(script);
    return Ask(server.address());
  }
  void ConnectTo(const ServerAddress& address, double request_timeout = 10) {
    ClientConfig config;
    config.deadline = 20;
    config.request_timeout = request_timeout;
    Connect(address, config, 0, /*pull=*/0);
  }
};

// Would catch READONLY until the deadline, although the other address is the primary.
TEST_F(RolesTest, APairChangesRoles) {
  FakeServer one(&service_), two(&service_);
  one.SetScript(Replica());
  ConnectTo(ParseServerAddress("redis://" + one.endpoint() + "," + two.endpoint()).value());
  TrainEight();
  EXPECT_EQ(one.frames.load(), 0);
  for (int i = 0; i < 2; ++i) {
    FakeServer& old = i == 0 ? two : one;
    FakeServer& heir = i == 0 ? one : two;
    heir.SetScript(nullptr);
    old.SetScript(Replica());
    TrainEight();
  }
  ExpectExact();
}

// Would catch a new connection that counts as an answer: a host that accepts and says nothing.
TEST_F(RolesTest, APrimaryThatHangsIsReplaced) {
  FakeServer one(&service_), two(&service_);
  ConnectTo(ParseServerAddress("redis://" + one.endpoint() + "," + two.endpoint()).value(), 0.3);
  TrainEight();
  EXPECT_EQ(two.frames.load(), 0);
  one.pause_milliseconds = 3000;
  TrainEight();
  EXPECT_GT(two.frames.load(), 0);
  one.pause_milliseconds = 0;
}

// A Sentinel, which may want the login, names the server when a connection is made, and when a server refuses
// to be the primary.
TEST_F(RolesTest, ASentinelNamesThePrimary) {
  FakeServer one(&service_), two(&service_), silent(&service_), sentinel(&service_);
  std::atomic<const FakeServer*> primary{&one};
  std::atomic<bool> known{false};
  const auto accepts = [](const FakeServer::Command& command) {
    return command.words[0] == "AUTH" ? "+OK" : "";
  };
  one.SetScript(accepts);
  two.SetScript(accepts);
  silent.SetScript([&](const FakeServer::Command& command) {  // does not know the service
    return command.words[0] == "AUTH" ? "+OK" : "*-1";
  });
  sentinel.SetScript([&](const FakeServer::Command& command) -> std::string {
    if (command.words[0] == "AUTH") {
      known = true;
      return "+OK";
    }
    if (!known) return "-NOAUTH Authentication required.";
    EXPECT_EQ(command.words[0], "SENTINEL");
    EXPECT_EQ(command.words[2], "models");
    const std::string endpoint = primary.load()->endpoint();
    const size_t colon = endpoint.find(':');
    return "*2\r\n" + Bulk(endpoint.substr(0, colon)) + "\r\n" + Bulk(endpoint.substr(colon + 1));
  });
  ServerAddress address = silent.address();
  address.nodes.push_back(sentinel.address().nodes[0]);
  address.service = "models";
  address.password = "pw";
  ConnectTo(address);
  TrainEight();
  EXPECT_TRUE(known);
  EXPECT_EQ(two.frames.load(), 0);
  primary = &two;
  one.SetScript([&](const FakeServer::Command& command) {
    return command.words[0] == "AUTH" ? "+OK" : Replica()(command);
  });
  const int before = one.frames.load();
  TrainEight();
  EXPECT_EQ(one.frames.load(), before);
  ExpectExact();
  address.service = "others";
  address.nodes.resize(1);
  EXPECT_THAT(Ask(address).message(), HasSubstr("knows no service 'others'"));
}

// Would catch a password that is read once, and a connection that stays although the server wants a login.
TEST_F(RolesTest, APasswordThatChanges) {
  FakeServer server(&service_);
  std::mutex mutex;
  std::string wanted = "first";
  std::string given = "first";
  std::set<std::string> seen;
  const auto in = [&](std::string* text, std::string value) {
    const std::lock_guard<std::mutex> lock(mutex);
    *text = std::move(value);
  };
  std::atomic<bool> out{false};
  server.SetScript([&](const FakeServer::Command& command) -> std::string {
    const std::lock_guard<std::mutex> lock(mutex);
    if (command.words[0] != "AUTH") return out ? "-NOAUTH Authentication required." : "";
    seen.insert(command.words[1]);
    out = command.words[1] != wanted;
    return out ? "-WRONGPASS invalid username-password pair or user is disabled." : "+OK";
  });
  ServerAddress address = server.address();
  address.ask_password = [&]() -> Result<std::string> {
    const std::lock_guard<std::mutex> lock(mutex);
    return given;
  };
  ConnectTo(address);
  TrainEight();
  in(&wanted, "second");
  out = true;  // the server drops the login
  std::thread rotation([&] {
    while (true) {  // the old password is tried again before the new one is there
      {
        const std::lock_guard<std::mutex> lock(mutex);
        if (out && server.connections.load() > 2) break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    in(&given, "second");
  });
  TrainEight();
  rotation.join();
  EXPECT_EQ(seen, (std::set<std::string>{"first", "second"}));
  ExpectExact();
}

TEST_F(RolesTest, AServerSaysWhatItIs) {
  const std::pair<std::map<std::string, std::string>, const char*> cases[] = {
      {{{"CLUSTER", "-ERR unknown command 'CLUSTER', with args beginning with: 'SLOTS' "},
        {"HELLO", Hello("sentinel")},
        {"ROLE", "*1\r\n" + Bulk("sentinel")}},
       "is a Sentinel; write redis+sentinel://127.0.0.1:"},
      {{{"HELLO", Hello("standalone", /*module=*/false)}}, "has not loaded the het module; start it with"},
      {{{"ROLE", ReplicaOf("10.0.0.9", 7000)}},
       "is a read-only replica of 10.0.0.9:7000; give the address of the primary, or both"},
      {{{"CLUSTER", "-ERR unknown command 'CLUSTER', with args beginning with: 'SLOTS' "}},
       "take rename-command for it out of redis.conf"},
      {{{"CLUSTER", "-NOPERM this user has no permissions to run the 'cluster|slots' command"},
        {"HELLO", Hello("cluster")}},
       "grant the user its rights (examples/deploy/users.conf)"},
      {{{"CLUSTER", "-NOAUTH Authentication required."}}, "give user and password as redis://USER:PASSWORD@"},
      {{{"CLUSTER", "-DENIED Redis is running in protected mode because protected mode is enabled"}},
       "it is in protected mode; give it a password"},
      {{{"CLUSTER", "HTTP/1.1 400 Bad Request"}}, "it is no server of Redis' protocol: check the port"},
      {{{"CLUSTER", "-ERR unknown command 'CLUSTER'"}, {"HELLO", Hello("standalone")}}, ""},  // it is used
  };
  for (const auto& [answers, what] : cases) {
    const Status status = AskWith([&answers = answers](const FakeServer::Command& command) {
      const auto found = answers.find(command.words[0]);
      return found == answers.end() ? "" : found->second;
    });
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_EQ(status.ok(), *what == 0) << status.message();
    const bool names_module = std::string(what).find("het module") != std::string::npos;
    if (!names_module) {
      EXPECT_THAT(status.message(), Not(HasSubstr("het module"))) << "it has loaded it";
    }
  }
}

// Would catch an update that is lost or doubled when Ctrl-C ends the wait for a server.
TEST_F(RolesTest, AnInterruptedCallKeepsItsUpdates) {
  FakeServer server(&service_);
  auto* const before = signal(SIGINT, [](int) {});
  ConnectTo(server.address());
  TrainEight();
  std::atomic<bool> still{true};
  server.SetScript([&](const FakeServer::Command&) {
    while (still) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return "";
  });
  {
    const Interrupts scope(Interrupts::By::kFunction);
    raise(SIGINT);
    EXPECT_TRUE(Fails(Train({1, 2, 3, 4, 5, 6, 7, 8}), Code::kCancelled,
                      "it was interrupted; updates that were made are kept"));
    EXPECT_EQ(RedisCluster(server.address()).Refresh(100).code(), Code::kCancelled);
  }
  still = false;
  TrainEight();
  ExpectExact();
  signal(SIGINT, before);
}

}  // namespace
}  // namespace het::testing
