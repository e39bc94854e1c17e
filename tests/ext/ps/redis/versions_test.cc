// A worker at the server module of another build, which HET_TEST_MODULE names (tools/previous.sh); without
// it, of the same build. Catches frames, chunks and commands that change while their version does not, and
// versions that differ without the worker saying so.
#include <gmock/gmock.h>

#include "het_tf/core/store/chunk_format.h"
#include "het_tf/core/wire/frame_bytes.h"
#include "het_tf/ext/checkpoint/cc/checkpoints.h"
#include "het_tf/ext/ps/keyspace.h"
#include "tests/testing/redis/remote_worker.h"
#include "tests/testing/temp_folder.h"

namespace het::testing {
namespace {

using ::testing::HasSubstr;

// What whoever meets another version must say.
auto Names(const std::string& what, int theirs, const std::string& does, int ours) {
  return HasSubstr(what + " version " + std::to_string(theirs) + "; this side " + does + " version " +
                   std::to_string(ours) + ": upgrade the older side");
}

TEST(RedisVersions, EqualOnesWorkAndOthersAreRefused) {
  if (const std::string missing = RedisServer::Missing(); !missing.empty()) GTEST_SKIP() << missing;
  RedisServer server;
  ASSERT_TRUE(server.up()) << server.Log();
  const ServerAddress address = server.address();
  server.Command({"HSET", "het:", "partitions", "4", "hash_seed", "3"});
  ClientConfig config;
  config.deadline = 5;
  RemoteWorker worker(address, config, /*bound=*/2);
  RemoteWorker other(address, config, /*bound=*/2);
  const std::string key = PartitionKeys("", 4)[0];
  const std::string reply = server.Command({"HET.READ", key, "no frame"}).text;
  ASSERT_GT(reply.size(), 4u);
  if (const uint8_t version = reply[4]; version != frame::kVersion) {
    EXPECT_THAT(worker.Count({1}).message(), Names("frame", version, "speaks", frame::kVersion));
    return;
  }
  for (int step = 0; step < 10 && !HasFailure(); ++step) {
    worker.Train({1, 2, 3, 4});
    other.Train({1, 2, 100 + step});
  }
  const auto expect_trained = [&] {
    worker.Flush();
    other.Flush();
    RemoteWorker reader(address, config);
    EXPECT_EQ(reader.Value(1), 20);
    EXPECT_EQ(reader.Value(109), 1);
    EXPECT_EQ(reader.Value(110), 0);
  };
  expect_trained();
  const TempFolder folder;
  SaveRequest save;
  save.tables = {"t"};
  save.partitions = {0, 1, 2, 3};
  const auto scan = server.Command({"HET.SCAN", key, "0", "COUNT", "1"}).elements;
  ASSERT_EQ(scan.size(), 2u);
  const uint8_t version = scan[1].text.at(4);
  const Status saved = SaveRows(&worker.engine(), folder.path() + "/rows", save).status();
  if (version != chunk::kVersion) {
    EXPECT_THAT(saved.message(), Names("chunk", version, "reads", chunk::kVersion));
    return;
  }
  ASSERT_TRUE(saved.ok()) << saved.message();
  worker.Train({1, 2, 3, 4});
  worker.Flush();
  ASSERT_TRUE(worker.engine().loads().Begin("loader", 60).ok());
  ASSERT_TRUE(worker.engine().loads().Clear("t").ok());
  LoadRequest load;
  load.tables["t"] = {"t", true};
  ASSERT_TRUE(LoadRows(&worker.engine(), folder.path() + "/rows", load).ok());
  ASSERT_TRUE(worker.engine().loads().Commit({{"t", 70}}, {{"t", 3}}).ok());
  expect_trained();
}

}  // namespace
}  // namespace het::testing
