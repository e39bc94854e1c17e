// Ranks are threads of this process, connected by socket pairs.
#include "het_tf/ext/workers/cc/mesh.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <random>
#include <thread>

#include "het_tf/ext/workers/cc/reduce.h"
#include "tests/testing/status.h"

namespace het {
namespace {

using ::testing::HasSubstr;

constexpr double kLong = 60;  // a timeout that no test waits for

// sockets[a][b]: rank a's connection to rank b.
std::vector<std::vector<int>> Pairs(uint32_t ranks) {
  std::vector<std::vector<int>> sockets(ranks, std::vector<int>(ranks, -1));
  for (uint32_t a = 0; a < ranks; ++a) {
    for (uint32_t b = a + 1; b < ranks; ++b) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
      sockets[a][b] = ends[0];
      sockets[b][a] = ends[1];
    }
  }
  return sockets;
}

std::vector<std::unique_ptr<Mesh>> Ranks(uint32_t count, double timeout = kLong, double patience = kLong) {
  auto sockets = Pairs(count);
  std::vector<std::unique_ptr<Mesh>> ranks;
  for (uint32_t rank = 0; rank < count; ++rank) {
    ranks.push_back(std::make_unique<Mesh>(rank, std::move(sockets[rank]), timeout, patience));
  }
  return ranks;
}

// Runs body(mesh) on a thread for each rank, and returns what each has returned.
template <typename Body>
std::vector<Status> OnAll(const std::vector<std::unique_ptr<Mesh>>& ranks, const Body& body) {
  std::vector<std::future<Status>> calls;
  for (const auto& rank : ranks) {
    calls.push_back(std::async(std::launch::async, [&body, mesh = rank.get()] { return body(mesh); }));
  }
  std::vector<Status> results;
  for (auto& call : calls) results.push_back(call.get());
  return results;
}

Status Say(Mesh* mesh, const std::string& label, const std::string& what, const std::vector<Bytes>& parts,
           std::vector<Bytes>* received) {
  std::vector<Span<const uint8_t>> spans;
  for (const Bytes& part : parts) spans.emplace_back(part.data(), part.size());
  return mesh->Exchange(label, what, spans, received);
}

void ExpectOk(const std::vector<Status>& all) {
  for (const Status& status : all) EXPECT_TRUE(Ok(status));
}

// A barrier.
Status Meet(Mesh* mesh, const std::string& label) {
  std::vector<Bytes> received;
  return Say(mesh, label, "", std::vector<Bytes>(mesh->size()), &received);
}

TEST(MeshTest, EachRankGetsThePartsThatWereSentToIt) {
  const auto ranks = Ranks(4);
  const auto part = [](uint32_t from, uint32_t to, int round) {
    return Bytes(1000 * from + 10 * to + round, static_cast<uint8_t>(from * 16 + to));  // also empty ones
  };
  const auto all = OnAll(ranks, [&](Mesh* mesh) {
    for (int round = 0; round < 20; ++round) {
      std::vector<Bytes> parts, received;
      for (uint32_t to = 0; to < mesh->size(); ++to) parts.push_back(part(mesh->rank(), to, round));
      HET_RETURN_IF_ERROR(Say(mesh, "one", "bytes", parts, &received));
      for (uint32_t from = 0; from < mesh->size(); ++from) {
        const Bytes expected = from == mesh->rank() ? Bytes() : part(from, mesh->rank(), round);
        if (received[from] != expected) return Status(Code::kInternal, "another part");
      }
    }
    return Status();
  });
  ExpectOk(all);
}

// Labels match, whatever the order of calls: graphs run their ops in orders of their own.
TEST(MeshTest, CollectivesThatRunBesideEachOtherNeedNoOrder) {
  const auto ranks = Ranks(3);
  std::vector<std::future<Status>> calls;
  for (const auto& rank : ranks) {
    for (int label = 0; label < 4; ++label) {
      calls.push_back(std::async(std::launch::async, [mesh = rank.get(), label] {
        std::mt19937 random(mesh->rank() * 7 + label);
        for (int round = 0; round < 50; ++round) {
          if (random() % 3 == 0) std::this_thread::yield();
          std::vector<int64_t> values(1 + label, round * 10 + mesh->rank());
          HET_RETURN_IF_ERROR(
              SumOverRanks(mesh, "label" + std::to_string(label), false, values.data(), values.size()));
          if (values[0] != 3 * round * 10 + 3) return Status(Code::kInternal, "another round's sum");
        }
        return Status();
      }));
    }
  }
  for (auto& call : calls) {
    EXPECT_TRUE(Ok(call.get()));
  }
}

template <typename T>
void CheckSums(uint32_t count, size_t values, bool mean) {
  const auto ranks = Ranks(count);
  std::vector<std::vector<T>> of(count, std::vector<T>(values));
  std::vector<T> expected(values);
  std::mt19937 random(5);
  for (size_t i = 0; i < values; ++i) {
    for (uint32_t rank = 0; rank < count; ++rank) {
      of[rank][i] = static_cast<T>(std::is_floating_point_v<T> ? random() / 3e5 - 7e3 : random() % 1000);
      expected[i] =
          rank == 0 ? of[rank][i] : static_cast<T>(expected[i] + of[rank][i]);  // in the order of ranks
    }
    if (mean) expected[i] *= T{1} / static_cast<T>(count);
  }
  const auto all = OnAll(
      ranks, [&](Mesh* mesh) { return SumOverRanks(mesh, "sum", mean, of[mesh->rank()].data(), values); });
  for (uint32_t rank = 0; rank < count; ++rank) {
    EXPECT_TRUE(all[rank].ok()) << all[rank].message();
    EXPECT_EQ(of[rank], expected) << "rank " << rank << " of " << count << ", " << values << " values";
  }
}

TEST(ReduceTest, EveryRankHasTheSameBitsOfTheSumInTheOrderOfRanks) {
  for (const uint32_t count : {2u, 3u, 5u}) {
    for (const size_t values : {size_t{0}, size_t{1}, size_t{1000}, size_t{40001}}) {  // the last in slices
      CheckSums<float>(count, values, true);
      CheckSums<float>(count, values, false);
    }
    CheckSums<double>(count, 20000, true);
    CheckSums<int64_t>(count, 20000, false);
    CheckSums<int32_t>(count, 3, false);
  }
}

// More than the sockets hold, in both directions at once.
TEST(MeshTest, RanksThatBothSendMuchDoNotBlockEachOther) {
  CheckSums<float>(2, 1'000'000, true);
  CheckSums<float>(3, 400'000, true);
}

TEST(MeshTest, RanksWithOtherDataAreTold) {
  const auto ranks = Ranks(3);
  const auto all = OnAll(ranks, [&](Mesh* mesh) {
    std::vector<float> values(mesh->rank() == 2 ? 12 : 10);
    return SumOverRanks(mesh, "gradient.1", true, values.data(), values.size());
  });
  for (const Status& status : all) {
    EXPECT_TRUE(Fails(status, Code::kInvalidArgument, "float [12]", "float [10]", "rank 2"));
  }
  // All have read all: the next one is in step.
  ExpectOk(OnAll(ranks, [](Mesh* mesh) { return Meet(mesh, "gradient.1"); }));
}

TEST(MeshTest, RanksThatWaitInDifferentCollectivesAreTold) {
  const auto ranks = Ranks(2, /*timeout=*/1);
  const auto all =
      OnAll(ranks, [](Mesh* mesh) { return Meet(mesh, mesh->rank() == 0 ? "logs" : "metrics"); });
  EXPECT_TRUE(Fails(all[0], Code::kAborted, "rank 0 in logs, and rank 1 in metrics"));
  // The other one is told the same, or that this one has given up: it fails in any case.
  EXPECT_FALSE(all[1].ok());
}

TEST(MeshTest, ARankThatEndsFailsOnlyWhoNeedsIt) {
  auto ranks = Ranks(3);
  std::vector<Status> all = OnAll(ranks, [](Mesh* mesh) { return Meet(mesh, "last"); });
  ExpectOk(all);
  std::thread ends([&] { ranks[2].reset(); });
  const Status waits = Meet(ranks[0].get(), "more");  // which rank 1, that lives, has not called
  ends.join();
  EXPECT_TRUE(Fails(waits, Code::kUnavailable, "has ended"));
}

// The last message must arrive although its sender closes at once, with unread bytes in its socket.
TEST(MeshTest, WhatARankSentBeforeItsEndIsRead) {
  for (int round = 0; round < 20; ++round) {
    auto ranks = Ranks(2);
    std::thread first([&] {
      EXPECT_TRUE(Meet(ranks[0].get(), "last").ok());
      ranks[0].reset();
    });
    std::vector<float> values(300'000, 1);
    EXPECT_TRUE(Meet(ranks[1].get(), "last").ok());
    first.join();
  }
}

TEST(MeshTest, ALostRankIsNamedByAll) {
  auto sockets = Pairs(3);
  const std::vector<int> dies = sockets[1];
  std::vector<std::unique_ptr<Mesh>> ranks;
  ranks.push_back(std::make_unique<Mesh>(0, sockets[0], kLong));
  ranks.push_back(std::make_unique<Mesh>(2, sockets[2], kLong));
  std::thread kill([&] {
    for (const int socket : dies) {
      if (socket >= 0) close(socket);
    }
  });
  for (const Status& status : OnAll(ranks, [](Mesh* mesh) { return Meet(mesh, "step"); })) {
    EXPECT_TRUE(Fails(status, Code::kUnavailable, "rank 1 is lost"));
  }
  kill.join();
  const Status later = Meet(ranks[0].get(), "step");
  EXPECT_THAT(later.message(), HasSubstr("rank 1 is lost")) << "later calls fail, too";
}

// As a process that is stopped: its socket takes bytes and gives none.
TEST(MeshTest, ASilentRankIsLostAfterTheTimeout) {
  auto sockets = Pairs(2);
  Mesh mesh(0, sockets[0], /*timeout=*/0.2);
  const std::vector<uint8_t> much(10'000'000);  // also while it sends more than the socket holds
  std::vector<Bytes> received;
  EXPECT_TRUE(Fails(mesh.Exchange("step", "", {{}, much}, &received), Code::kUnavailable,
                    "rank 1 is lost: nothing has come from it"));
  close(sockets[1][0]);
}

TEST(MeshTest, ARankThatComputesIsNotLostAndTheOtherSaysWhomItWaitsFor) {
  const auto ranks = Ranks(2, /*timeout=*/1, /*patience=*/0.2);
  ::testing::internal::CaptureStderr();
  std::promise<void> waited;
  std::thread computes([&] {
    // Many timeouts, in which rank 0 waits and rank 1 calls nothing.
    waited.get_future().wait_for(std::chrono::milliseconds(1500));
    EXPECT_TRUE(Meet(ranks[1].get(), "step").ok());
  });
  EXPECT_TRUE(Meet(ranks[0].get(), "step").ok());
  computes.join();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("s in collective step for rank 1, which lives\n"));
}

// tests/fuzz has what a stranger may send; these are limits of a rank itself, which must name them.
TEST(MeshTest, WhatIsTooLargeIsRefusedBeforeItTravels) {
  const auto ranks = Ranks(2);
  std::vector<Bytes> received;
  const uint8_t byte = 0;
  const Status data = ranks[0]->Exchange("step", "", {{}, {&byte, Mesh::kMostData + 1}}, &received);
  const Status text = Meet(ranks[0].get(), std::string(Mesh::kMostText + 1, 'l'));
  for (const Status& status : {data, text}) {
    EXPECT_TRUE(Fails(status, Code::kInvalidArgument, "travel between two ranks at once"));
    EXPECT_LT(status.message().size(), 500);
  }
  // Neither has begun.
  ExpectOk(OnAll(ranks, [](Mesh* mesh) { return Meet(mesh, "step"); }));
}

}  // namespace
}  // namespace het
