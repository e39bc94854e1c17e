// A client that waits for replicas: WAIT, its answers, and their effects.
#include <mutex>

#include "tests/ext/ps/client/transport_fixture.h"

namespace het::testing {
namespace {

class ReplicaTest : public TransportTest {
 protected:
  void Connect(FakeServer* server, ClientConfig config = ClientConfig()) {
    server->SetScript([this](const FakeServer::Command& command) -> std::string {
      if (command.words[0] != "WAIT") return "";
      std::lock_guard<std::mutex> lock(mutex_);
      last_wait_ = command.words[1] + " " + command.words[2];
      return answer_;
    });
    config.durability = Durability::kReplicated;
    config.min_replicas = 2;
    config.replica_interval = 0;
    TransportTest::Connect(*server, config, 0);
  }
  size_t Kept() {
    size_t frames = 0;
    for (uint32_t p = 0; p < kPartitions; ++p) frames += client_->session(p).log().frames().size();
    return frames;
  }
  void Settle() {
    for (int i = 0; i < 50; ++i) client_->Progress(0.01);
  }

  void Answer(const std::string& answer) {
    std::lock_guard<std::mutex> lock(mutex_);
    answer_ = answer;
  }
  std::string LastWait() {
    std::lock_guard<std::mutex> lock(mutex_);
    return last_wait_;
  }

 private:
  std::mutex mutex_;
  std::string answer_;
  std::string last_wait_;
};

TEST_F(ReplicaTest, FramesAreForgottenWhenEnoughReplicasHaveThem) {
  FakeServer server(&service_);
  Answer(":1");
  Connect(&server);
  TrainEight(3);
  Settle();
  EXPECT_EQ(Kept(), 9u) << "one replica of two is not enough";
  EXPECT_TRUE(client_->Busy());
  Answer(":2");
  TrainEight();
  for (int i = 0; i < 300 && Kept() > 0; ++i) client_->Progress(0.01);
  EXPECT_EQ(Kept(), 0u);
  EXPECT_FALSE(client_->Busy());
  EXPECT_EQ(LastWait(), "2 20") << "replicas, milliseconds";
  ExpectExact();
}

TEST_F(ReplicaTest, FullMemoryOfKeptFramesFailsAtTheDeadline) {
  FakeServer server(&service_);
  Answer(":1");
  ClientConfig config;
  config.keep_bytes = 2000;
  config.deadline = 3;  // replicas are asked at least once a second
  Connect(&server, config);
  Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) status = Train({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_TRUE(Fails(status, Code::kDeadlineExceeded,
                    "at " + server.endpoint() + ": pushes are with 1 of 2 replicas, since",
                    "Bring the replicas back"));
  for (Key key = 1; key <= 8; ++key) ++expected_[key];
  Answer(":2");
  TrainEight();
  ExpectExact();
}

// A server that has just become a replica, or loads, cannot count replicas. The connection lives on until a
// push is redirected, so no step may fail.
TEST_F(ReplicaTest, TransientErrorsOfWaitAreRetried) {
  FakeServer server(&service_);
  Answer(
      "-ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a "
      "replica is configured to be writable (which is not the default) writes to replicas are just local.");
  Connect(&server);
  TrainEight(10);
  Answer("-LOADING Redis is loading the dataset in memory");
  TrainEight(10);
  EXPECT_EQ(Kept(), 20u * kPartitions);
  Answer(":2");
  for (int i = 0; i < 300 && Kept() > 0; ++i) client_->Progress(0.01);
  EXPECT_EQ(Kept(), 0u);
  ExpectExact();
}

TEST_F(ReplicaTest, AQuestionThatIsForbiddenIsAnError) {
  FakeServer server(&service_);
  Answer("-NOPERM this user has no permissions to run the 'wait' command");
  Connect(&server);
  Status status;
  for (int i = 0; i < 500000 && status.ok(); ++i) status = Train({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_TRUE(Fails(status, Code::kFailedPrecondition, "NOPERM", "WAIT: grant it"));
}

}  // namespace
}  // namespace het::testing
