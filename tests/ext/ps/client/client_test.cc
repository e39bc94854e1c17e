// The parts of the parameter server's client that need no server: addresses, keys and slots, redirects.
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "het_tf/ext/ps/client/cluster.h"
#include "het_tf/ext/ps/keyspace.h"
#include "tests/testing/status.h"

namespace het {
namespace {

using ::testing::HasSubstr;

// Separators in passwords and paths; percent-encoded logins (a server refuses a password in which %40 is sent
// for @); ports that are missing. Addresses that are refused: tests/ext/ps/test_het_ps_parts.py.
TEST(Address, LoginAndNodes) {
  const struct {
    const char *text, *user, *password, *shown;
  } cases[] = {
      {"redis://me:a:b@c@host:1,[::1]:2,third/", "me", "a:b@c", "host:1,::1:2,third:6379"},
      {"rediss://me:a?b@h:1,i/?cert=/c@1/c.pem&ca=/ca", "me", "a?b", "h:1,i:6379"},
      {"redis://m%65:a%40b%2Fc%25%3a@host/", "me", "a@b/c%:", "host:6379"},
      {"unix://:100%25@/s", "", "100%", "/s"},
      {"unix://:secret@/run/a@b,c", "", "secret", "/run/a@b,c"},
      {"redis+sentinel://me:pw@a,b:7/models", "me", "pw", "a:26379,b:7/models"},
  };
  for (const auto& one : cases) {
    const auto address = ValueOf(ParseServerAddress(one.text));
    EXPECT_EQ(address.user, one.user) << one.text;
    EXPECT_EQ(address.password, one.password) << one.text;
    EXPECT_EQ(address.ToString(), one.shown);
  }
  EXPECT_EQ(ParseServerAddress("redis+sentinel://a/models").value().service, "models");
}

TEST(Address, Tls) {
  EXPECT_FALSE(ParseServerAddress("redis://h").value().tls.has_value());
  EXPECT_EQ(ParseServerAddress("rediss://h:7000").value().tls.value().ca, "");
  for (const char* scheme : {"rediss://h", "rediss+sentinel://h/s"}) {
    const std::string text = std::string(scheme) + "?cert=/c@1/c.pem&key=/c@1/key&server_name=n&ca=/ca";
    const TlsSettings tls = ParseServerAddress(text).value().tls.value();
    EXPECT_EQ(tls.ca, "/ca");
    EXPECT_EQ(tls.cert, "/c@1/c.pem");
    EXPECT_EQ(tls.key, "/c@1/key");
    EXPECT_EQ(tls.server_name, "n");
  }
}

// Would catch a password that is read once: it is another one for the next connection.
TEST(Address, WhereThePasswordIs) {
  const std::string path = ::testing::TempDir() + "/het_password";
  const auto of_file = ParseServerAddress("redis://me@h?password_file=" + path).value();
  EXPECT_THAT(of_file.Password().status().message(), HasSubstr("password_file of the parameter server's"));
  for (const char* text : {"first", "second\n", "third\r\n"}) {
    std::ofstream(path) << text;
    EXPECT_EQ(of_file.Password().value(),
              std::string(text).substr(0, std::string(text).find_first_of("\r\n")));
  }
  std::ofstream(path) << "\n";
  EXPECT_THAT(of_file.Password().status().message(), HasSubstr("is empty"));

  const auto of_env = ParseServerAddress("rediss://h?password_env=HET_TEST_PASSWORD&ca=/ca").value();
  unsetenv("HET_TEST_PASSWORD");
  EXPECT_THAT(of_env.Password().status().message(), HasSubstr("HET_TEST_PASSWORD of"));
  setenv("HET_TEST_PASSWORD", "one", 1);
  EXPECT_EQ(of_env.Password().value(), "one");
  setenv("HET_TEST_PASSWORD", "two", 1);
  EXPECT_EQ(of_env.Password().value(), "two");

  const auto ask = [] { return Result<std::string>(std::string("asked")); };
  EXPECT_EQ(ParseServerAddress("unix://me@/s", ask).value().Password().value(), "asked");
  for (const char* text : {"redis://u:p@h", "redis://h?password_file=/f"}) {
    EXPECT_THAT(ParseServerAddress(text, ask).status().message(), HasSubstr("given twice")) << text;
  }
}

TEST(Keyspace, SlotsAreThoseOfRedis) {
  // The answers of CLUSTER KEYSLOT in Redis 7.0.
  EXPECT_EQ(SlotOf("123456789"), 12739u);
  EXPECT_EQ(SlotOf("foo"), 12182u);
  EXPECT_EQ(SlotOf("{foo}bar"), 12182u);
  EXPECT_EQ(SlotOf("a{foo}{bar}"), 12182u);
  EXPECT_EQ(SlotOf("{}foo"), SlotOf("{}foo")) << "an empty tag does not count";
  EXPECT_NE(SlotOf("{}foo"), SlotOf("foo"));
  EXPECT_EQ(SlotOf(""), 0u);
}

TEST(Keyspace, PartitionsSpreadEvenlyOverAnyNumberOfShards) {
  for (uint32_t partitions : {1u, 2u, 7u, 64u, 1000u, kSlots}) {
    const std::vector<std::string> keys = PartitionKeys("space", partitions);
    ASSERT_EQ(keys.size(), partitions);
    EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), partitions);
    for (uint32_t shards : {1u, 2u, 3u, 5u, 8u}) {
      std::vector<uint32_t> held(shards);
      for (const std::string& key : keys) ++held[SlotOf(key) * shards / kSlots];
      const auto [least, most] = std::minmax_element(held.begin(), held.end());
      EXPECT_LE(*most - *least, 1u) << partitions << " partitions on " << shards << " shards";
    }
  }
}

TEST(Keyspace, NamespacesThatWouldMoveTheSlot) {
  EXPECT_TRUE(CheckNamespace("").ok());
  EXPECT_TRUE(CheckNamespace("any thing:else").ok());
  EXPECT_THAT(CheckNamespace("a{b").message(), HasSubstr("namespace 'a{b'"));
  EXPECT_FALSE(CheckNamespace(std::string(201, 'x')).ok());
}

TEST(Redirects, MovedAndAsk) {
  const ServerNode from{"here", 1, ""};
  Redirect redirect;
  ASSERT_TRUE(ParseRedirect("MOVED 3999 10.0.0.2:6381", from, &redirect));
  EXPECT_FALSE(redirect.ask);
  EXPECT_EQ(redirect.slot, 3999u);
  EXPECT_EQ(redirect.node.ToString(), "10.0.0.2:6381");
  ASSERT_TRUE(ParseRedirect("ASK 16383 :6381", from, &redirect));
  EXPECT_TRUE(redirect.ask);
  EXPECT_EQ(redirect.node.ToString(), "here:6381") << "an empty host is the answering server's";
  for (const char* text :
       {"", "MOVED", "MOVED 1", "MOVED x a:1", "MOVED 16384 a:1", "MOVED 1 a", "OOM 1 a:1"}) {
    EXPECT_FALSE(ParseRedirect(text, from, &redirect)) << text;
  }
}

}  // namespace
}  // namespace het
