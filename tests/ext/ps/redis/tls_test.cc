// The client and a real server under TLS: bytes in both directions, refusals and their messages, training.
#include <gmock/gmock.h>

#include <cstdio>

#include "het_tf/ext/ps/client/cluster.h"
#include "het_tf/ext/ps/client/redis_changes.h"
#include "het_tf/ext/ps/client/tls_stream.h"
#include "tests/testing/random.h"
#include "tests/testing/redis/remote_worker.h"
#include "tests/testing/temp_folder.h"

namespace het::testing {
namespace {

constexpr char kNewKey[] = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Certificates for one test, made by openssl in a folder that the destructor deletes: NAME.crt and NAME.key,
// both PEM. "ca" is a CA, and "server" is signed by it, for 127.0.0.1 and localhost.
class Certificates {
 public:
  // Returns why a TLS server cannot run here; "" if it can.
  static std::string Missing() {
    if (const std::string missing = RedisServer::Missing(); !missing.empty()) return missing;
    if (std::system("command -v openssl >/dev/null 2>&1") != 0) {
      return "openssl is not installed (apt-get install openssl)";
    }
    // A server without a certificate stops; the message shows whether it was built with TLS.
    const std::string probe =
        RedisServer::Program() + " --port 0 --tls-port 1 --save '' 2>&1 | grep -q tls-cert-file";
    return std::system(probe.c_str()) == 0 ? "" : RedisServer::Program() + " is built without TLS";
  }

  Certificates() {
    MakeCa("ca");
    Issue("server", "IP:127.0.0.1,DNS:localhost");
  }

  void MakeCa(const std::string& name) {
    Run(std::string("openssl req -x509 ") + kNewKey + " -days 2 -subj '/CN=" + name + "' -keyout " + name +
        ".key -out " + name + ".crt");
  }
  // `subject`: such as "IP:127.0.0.1,DNS:localhost". With `days` -1 the certificate expired yesterday.
  void Issue(const std::string& name, const std::string& subject, const std::string& ca = "ca",
             int days = 2) {
    Run("printf 'subjectAltName=" + subject + "\\n' >extensions && openssl req -new " + kNewKey +
        " -subj '/CN=" + name + "' -keyout " + name +
        ".key -out request && openssl x509 -req -in request -CA " + ca + ".crt -CAkey " + ca +
        ".key -CAcreateserial -extfile extensions -days " + std::to_string(days) + " -out " + name + ".crt");
  }
  void Run(const std::string& command) {
    const std::string in_folder = "cd '" + folder_.path() + "' && { " + command + "; } >log 2>&1";
    EXPECT_EQ(std::system(in_folder.c_str()), 0) << command;
  }
  std::string Path(const std::string& file) const { return folder_.path() + "/" + file; }
  // The settings of a server that speaks TLS at this port with the certificate "server".
  RedisServer::Arguments Settings(int port) const {
    return {"--tls-port",     std::to_string(port), "--bind",
            "127.0.0.1",      "--tls-cert-file",    Path("server.crt"),
            "--tls-key-file", Path("server.key"),   "--tls-ca-cert-file",
            Path("ca.crt"),   "--tls-auth-clients", "no"};
  }

 private:
  TempFolder folder_;
};

class TlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = Certificates::Missing(); !missing.empty()) GTEST_SKIP() << missing;
    certificates_ = std::make_unique<Certificates>();
    port_ = RedisServer::FreePort();
  }
  void Start(RedisServer::Arguments more = {}) {
    RedisServer::Arguments settings = certificates_->Settings(port_);
    settings.insert(settings.end(), more.begin(), more.end());
    server_ = std::make_unique<RedisServer>(settings);
    ASSERT_TRUE(server_->up()) << server_->Log();
  }
  // With the CA "ca", unless the parameters have one.
  ServerAddress Address(const std::string& parameters = "") const {
    const std::string ca = parameters.find("ca=") == 0 ? "" : "ca=" + certificates_->Path("ca.crt");
    const char* const between = ca.empty() || parameters.empty() ? "" : "&";
    return ParseServerAddress("rediss://127.0.0.1:" + std::to_string(port_) + "?" + ca + between + parameters)
        .value();
  }
  // The error of a client that connects there; "" if it succeeds.
  static std::string Complaint(const ServerAddress& address) {
    return RedisCluster(address).Refresh(2).message();
  }
  void Show(const std::string& certificate) {
    ASSERT_TRUE(server_
                    ->Command({"CONFIG", "SET", "tls-cert-file", certificates_->Path(certificate + ".crt"),
                               "tls-key-file", certificates_->Path(certificate + ".key")})
                    .ok());
  }

  std::unique_ptr<Certificates> certificates_;
  int port_ = 0;
  std::unique_ptr<RedisServer> server_;
};

// With and without TLS. Long strings are read in place, and bytes behind them are not lost.
TEST_F(TlsTest, BytesBothWays) {
  Start();
  for (const ServerAddress& address : {Address(), server_->address()}) {
    BytePool pool;
    RedisConnection connection(address.nodes[0], address, &pool);
    std::vector<std::vector<std::string>> commands;
    Random r(1);
    for (int i = 0; i < 200; ++i) {
      const size_t most = r.Chance(0.5) ? 100 : r.Chance(0.85) ? 3 * RedisConnection::kDirectBytes : 500000;
      const size_t size = r.Below(most);
      commands.push_back({"ECHO", std::string(size, static_cast<char>('a' + size % 26))});
    }
    std::vector<het::RedisReply> replies;
    ASSERT_TRUE(Ok(connection.Ask(commands, 60, &replies)));
    ASSERT_EQ(replies.size(), commands.size());
    for (size_t i = 0; i < replies.size(); ++i) {
      EXPECT_TRUE(replies[i].text() == commands[i][1]) << i;
      pool.Give(std::move(replies[i].bytes));
    }
  }
}

TEST_F(TlsTest, CertificatesThatAreRefused) {
  Start();
  EXPECT_EQ(Complaint(Address()), "");
  certificates_->MakeCa("other");
  EXPECT_THAT(
      Complaint(Address("ca=" + certificates_->Path("other.crt"))),
      AllOf(HasSubstr("shows a certificate that is refused"), HasSubstr("is not the CA that signed it")));
  EXPECT_THAT(Complaint(ParseServerAddress("rediss://127.0.0.1:" + std::to_string(port_)).value()),
              HasSubstr("by ?ca=FILE"));
  certificates_->Issue("old", "IP:127.0.0.1", "ca", -1);
  Show("old");
  EXPECT_THAT(Complaint(Address()), HasSubstr("certificate has expired; renew"));
  certificates_->Issue("elsewhere", "DNS:elsewhere,IP:127.0.0.2");
  Show("elsewhere");
  EXPECT_THAT(Complaint(Address()), AllOf(HasSubstr("IP address mismatch"), HasSubstr("?server_name=NAME")));
  EXPECT_THAT(Complaint(Address("server_name=localhost")), HasSubstr("ostname mismatch"));
  EXPECT_EQ(Complaint(Address("server_name=elsewhere")), "");
  EXPECT_EQ(Complaint(Address("server_name=127.0.0.2")), "");
}

TEST_F(TlsTest, AWorkerTrainsThroughARestart) {
  Start(RedisServer::Logged());
  RemoteWorker worker(Address(), ClientConfig());
  for (int i = 0; i < 20; ++i) worker.Train({i % 5, 7});
  ASSERT_TRUE(server_->Restart()) << server_->Log();
  for (int i = 0; i < 20; ++i) worker.Train({i % 5, 7});
  EXPECT_EQ(worker.Value(7), 40);
  for (int64_t id = 0; id < 5; ++id) EXPECT_EQ(worker.Value(id), 8) << id;
}

// Would catch a follower whose connections lack the TLS settings of its address.
TEST_F(TlsTest, AFollowerReadsAChange) {
  Start();
  RemoteWorker worker(Address(), ClientConfig());
  auto source = ValueOf(RedisChanges::Open(Address(), "", 10));
  worker.Train({7});
  worker.Flush();
  for (uint32_t p = 0; p < source->partitions(); ++p) source->AskPage(p, ChangesRequest());
  std::vector<follow::ChangeAnswer> answers;
  ASSERT_TRUE(Eventually([&] {
    source->Collect(&answers);
    return answers.size() == source->partitions();
  }));
  Vector<Key> keys;
  for (const follow::ChangeAnswer& answer : answers) {
    ASSERT_TRUE(answer.status.ok()) << answer.status.message();
    for (const Bytes& chunk : answer.page.chunks) {
      ChangedRows rows;
      ASSERT_TRUE(DecodeChanges(chunk, &rows).ok());
      if (rows.what == ChangedRows::kValues) keys.insert(keys.end(), rows.keys.begin(), rows.keys.end());
    }
  }
  EXPECT_EQ(keys, Vector<Key>{7});

  certificates_->MakeCa("other");
  const std::string wrong = "ca=" + certificates_->Path("other.crt");
  EXPECT_THAT(RedisChanges::Open(Address(wrong), "", 10).status().message(),
              HasSubstr(wrong + " is not the CA that signed it"));
}

TEST_F(TlsTest, FilesThatCannotBeUsed) {
  TlsSettings settings;
  settings.ca = certificates_->Path("none.crt");
  EXPECT_TRUE(Fails(CheckTls(settings), Code::kFile, "ca=" + settings.ca, "No such file"));
  settings.ca = certificates_->Path("ca.key");
  EXPECT_TRUE(Fails(CheckTls(settings), Code::kInvalidArgument, "no certificate in PEM"));
  settings.ca = certificates_->Path("ca.crt");
  settings.cert = certificates_->Path("server.crt");
  settings.key = certificates_->Path("none.key");
  EXPECT_TRUE(Fails(CheckTls(settings), Code::kFile, "key", "No such file"));
  EXPECT_THAT(CheckTls(settings).message(), Not(HasSubstr("none")));
  certificates_->Run("openssl pkey -in server.key -aes128 -passout pass:words -out secret.key");
  for (const char* key : {"ca.key", "secret.key"}) {
    settings.key = certificates_->Path(key);
    EXPECT_TRUE(Fails(CheckTls(settings), Code::kInvalidArgument, "without a pass phrase"));
    EXPECT_THAT(CheckTls(settings).message(), Not(HasSubstr(key)));
  }
  settings.key = certificates_->Path("server.key");
  EXPECT_TRUE(CheckTls(settings).ok()) << CheckTls(settings).message();
}

// A new process finds a broken library before the system's.
TEST(TlsLibraryTest, OneThatCannotBeLoaded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  TempFolder folder;
  std::ofstream(folder.path() + "/libssl.so.3").flush();
  setenv("LD_LIBRARY_PATH", folder.path().c_str(), 1);
  const auto say = [] {
    const Status status = CheckTls(TlsSettings());
    std::fprintf(stderr, "%d: %s\n", static_cast<int>(status.code()), status.message().c_str());
    std::exit(0);
  };
  EXPECT_EXIT(say(), ::testing::ExitedWithCode(0),
              "9: libssl.so.3 cannot be loaded.*apt-get install libssl3");
  unsetenv("LD_LIBRARY_PATH");
}

}  // namespace
}  // namespace het::testing
