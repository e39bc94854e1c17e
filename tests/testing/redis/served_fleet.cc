#include "tests/testing/redis/served_fleet.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>

#include "het_tf/core/base/hash.h"
#include "het_tf/ext/ps/client/redis_changes.h"
#include "het_tf/ext/serving/cc/follow/boot_clock.h"
#include "het_tf/ext/serving/cc/follow/follower.h"
#include "het_tf/ext/serving/cc/follow/live_reader.h"
#include "het_tf/ext/serving/cc/serve/serve_writer.h"
#include "tests/testing/random.h"
#include "tests/testing/redis/remote_worker.h"
#include "tests/testing/redis/shared_memory.h"
#include "tests/testing/table_specs.h"

namespace het::testing {

// What writers did to rows, and when, in memory that processes share: the truth against which a read of
// served rows is checked (ext/serving/cc/follow).
//
// Each key has a list of events, written by one process. An event sets the row to a value; it begins before
// its request is sent, and is `acked` when the server has said that it is done (CLOCK_BOOTTIME), or never.
//
// A read that claims to be as new as the server was at `seen` may show event i if its successor was not acked
// by `seen`: then the claim would be false.
constexpr het::Key kServedKeys = 24;
constexpr het::Key kRemovedKeys = 8;  // the last ones: a writer removes them now and then
constexpr uint64_t kMostEvents = 1 << 15;
constexpr uint64_t kMostVersions = 4096;

struct RowEvent {
  std::atomic<uint64_t> acked{0};  // 0: not yet
  std::atomic<float> value{0};
};

struct RowHistory {
  std::atomic<uint64_t> size{0};
  RowEvent events[kMostEvents];

  // Of the writer. Returns the event's number.
  uint64_t Begin(float value) {
    const uint64_t number = size.load();
    if (number == kMostEvents) std::abort();
    events[number].value = value;
    size = number + 1;
    return number;
  }
  void Ack(uint64_t event) { events[event].acked = follow::BootNanoseconds(); }
  // The number of the last acked event.
  uint64_t LastAcked() const {
    uint64_t number = size.load();
    while (number > 1 && events[number - 1].acked == 0) --number;
    return number - 1;
  }
};

// A version of a model, with the events that its rows must show at least.
struct ServedVersion {
  std::atomic<bool> ready{false};
  uint64_t cut[kServedPartitions][2];  // incarnation, number
  uint64_t least[kServedKeys];
};

struct ServedRows {
  RowHistory rows[kServedKeys];
  ServedVersion versions[kMostVersions];  // [0] is the base
  std::atomic<uint64_t> published{0};

  std::atomic<bool> stop{false};
  std::atomic<bool> pause{false};  // writers rest between two events
  std::atomic<uint32_t> resting{0};
  std::atomic<uint64_t> checked{0};    // rows
  std::atomic<uint64_t> last_seen{0};  // of the last read
  std::atomic<uint64_t> in_force{0};   // the last read's version
  std::atomic<uint32_t> errors{0};
  char first_error[512] = {};

  void Error(const std::string& what) {
    if (errors.fetch_add(1) == 0) std::snprintf(first_error, sizeof(first_error), "%s", what.c_str());
  }
  // Checks a row that was read just now, of which the claim is that it is the server's of `seen` or newer.
  // The dense weights of `version` were read before. Returns the number of the newest event that it may be.
  uint64_t Check(het::Key key, const float* value, size_t dim, uint64_t seen, uint64_t version) {
    ++checked;
    const std::string name = "key " + std::to_string(key) + ": ";
    for (size_t i = 1; i < dim; ++i) {
      if (value[i] != value[0]) Error(name + "a torn row");
    }
    const RowHistory& row = rows[key];
    const uint64_t least = versions[version].least[key];
    const uint64_t size = row.size;
    for (uint64_t i = size; i-- > 0;) {
      if (row.events[i].value == value[0]) {
        if (i < least) break;
        return i;
      }
      const uint64_t acked = row.events[i].acked;
      if (acked != 0 && acked <= seen) {
        const double late = static_cast<double>(follow::BootNanoseconds() - acked) * 1e-9;
        const double claim = static_cast<double>(follow::BootNanoseconds() - seen) * 1e-9;
        Error(name + "value " + std::to_string(value[0]) + " was replaced by " +
              std::to_string(row.events[i].value.load()) + " " + std::to_string(late) +
              " s ago, and the claimed age is " + std::to_string(claim) + " s");
        return i;
      }
    }
    Error(name + "value " + std::to_string(value[0]) + " is older than the cut of version " +
          std::to_string(version) + ", or was never written; its last event is " +
          std::to_string(row.events[size - 1].value.load()));
    return 0;
  }
};

Shared<ServedRows> NewServedRows() {
  auto made = NewShared<ServedRows>();
  for (RowHistory& row : made->rows) row.Ack(row.Begin(0));  // no row yet
  made->versions[0].ready = true;
  return made;
}
namespace {

constexpr uint64_t kHashSeed = 99;

// The table of RemoteWorker.
Schema ServedSchema() { return NewSchema("t", RemoteWorker::kDim, "sgd", {"zeros", 0, 0}); }

void Sleep(uint64_t microseconds) { std::this_thread::sleep_for(std::chrono::microseconds(microseconds)); }

}  // namespace

ServedFleet::ServedFleet(RedisShards* servers, uint64_t seed)
    : address_(servers->address()), seed_(seed), rows_(NewServedRows()) {
  RedisCluster cluster(address_);
  EXPECT_TRUE(cluster.Refresh(10).ok());
  const auto made = cluster.Ask(MetaKey(""),
                                {"HSET", MetaKey(""), "partitions", std::to_string(kServedPartitions),
                                 "hash_seed", std::to_string(kHashSeed)},
                                10);
  EXPECT_TRUE(made.ok() && made.value().ok());
  auto base = serve::ServeWriter::Create(folder_.path() + "/t.het", ServedSchema(), serve::WriteOptions());
  EXPECT_TRUE(base.ok() && base.value()->Finish().ok());
  // Makes the partitions and the table, which the follower looks for. In another process: it has threads.
  pids_["maker"] = fork();
  if (pids_["maker"] == 0) _exit(RemoteWorker(Text(), ClientConfig()).ok() ? 0 : 1);
  int status = 0;
  waitpid(pids_["maker"], &status, 0);
  EXPECT_EQ(status, 0);
  pids_.erase("maker");
}

ServedFleet::~ServedFleet() {
  while (!pids_.empty()) Kill(std::string(pids_.begin()->first));
}

std::string ServedFleet::PartitionKeyOf(uint32_t partition) const {
  return PartitionKeys("", kServedPartitions)[partition];
}

std::string ServedFleet::Text() const {
  std::string nodes;
  for (const ServerNode& node : address_.nodes) nodes += (nodes.empty() ? "" : ",") + node.ToString();
  return (address_.nodes[0].path.empty() ? "redis://" : "unix://") + nodes;
}

void ServedFleet::Start(const std::string& name) {
  const pid_t pid = fork();
  if (pid != 0) {
    pids_[name] = pid;
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (name == "follower") Follow();
  if (name == "publisher") Publish();
  if (name.rfind("reader", 0) == 0) Read();
  if (name.rfind("writer", 0) == 0) Write(static_cast<uint32_t>(name.back() - '0'));
  _exit(0);
}

void ServedFleet::StartAll() {
  for (const char* name : {"writer0", "writer1", "follower", "publisher", "reader"}) Start(name);
  AwaitServed();
}

void ServedFleet::Kill(const std::string& name, int signal) {
  const pid_t pid = pids_.at(name);
  kill(pid, signal);
  waitpid(pid, nullptr, 0);
  pids_.erase(name);
}

bool ServedFleet::Await(const char* what, const std::function<bool()>& done) {
  for (int tries = 0; tries < 60000; ++tries) {
    if (done() || rows_->errors > 0) return rows_->errors == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "five minutes are over: " << what;
  return false;
}

bool ServedFleet::AwaitServed() {
  const uint64_t now = follow::BootNanoseconds();
  const uint64_t version = rows_->published;
  return Await("rows and a version of now are served", [&] {
    return rows_->last_seen > now && (pids_.count("publisher") == 0 || rows_->in_force > version);
  });
}

void ServedFleet::Pause() {
  rows_->resting = 0;
  rows_->pause = true;
  const auto writers = static_cast<uint32_t>(
      std::count_if(pids_.begin(), pids_.end(), [](const auto& p) { return p.first[0] == 'w'; }));
  Await("writers rest", [&] { return rows_->resting == writers; });
}

void ServedFleet::Resume() { rows_->pause = false; }

void ServedFleet::Finish() {
  Resume();
  AwaitServed();
  rows_->stop = true;
  for (const auto& [name, pid] : std::exchange(pids_, {})) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << name << " ended with " << status;
  }
  EXPECT_EQ(rows_->errors, 0u) << rows_->first_error;
  EXPECT_GT(rows_->checked, 100u);
}

void ServedFleet::Write(uint32_t writer) {
  Random random(seed_ * 100 + writer);
  ClientConfig config;
  config.max_backoff = 0.1;
  config.deadline = 60;
  RemoteWorker worker(Text(), config);
  std::vector<Key> mine;
  for (Key key = writer; key < kServedKeys; key += kWriters) mine.push_back(key);
  std::map<Key, float> values;
  while (!rows_->stop) {
    if (rows_->pause) {
      ++rows_->resting;
      while (rows_->pause && !rows_->stop) Sleep(1000);
      continue;
    }
    const Key removed = random.Pick(mine);
    if (removed >= kServedKeys - kRemovedKeys && values[removed] > 0) {
      const uint64_t event = rows_->rows[removed].Begin(0);
      // A removal is not sent again by itself: it may have been carried out.
      for (;;) {
        size_t count = 0;
        const Status status = worker.engine().tables().Remove("t", {&removed, 1}, &count);
        if (status.ok()) break;
        if (status.code() != Code::kUnavailable) return rows_->Error("a removal: " + status.message());
        if (rows_->stop) return;
      }
      rows_->rows[removed].Ack(event);
      values[removed] = 0;
    }
    std::set<int64_t> ids;
    for (int i = 0; i < 4; ++i) ids.insert(random.Pick(mine));
    std::vector<std::pair<Key, uint64_t>> events;
    for (const Key id : ids) events.emplace_back(id, rows_->rows[id].Begin(++values[id]));
    const Status status = worker.Step({ids.begin(), ids.end()});
    if (!status.ok()) return rows_->Error("a step: " + status.message());
    for (const auto& [key, event] : events) rows_->rows[key].Ack(event);
    Sleep(random.Below(3000));
  }
}

void ServedFleet::Follow() {
  auto source = RedisChanges::Open(address_, "", 3);
  for (; !source.ok() && !rows_->stop; source = RedisChanges::Open(address_, "", 3)) Sleep(20000);
  if (!source.ok()) return;
  auto live = follow::LiveWriter::Open(folder_.path() + "/live", {folder_.path() + "/t.het"});
  if (!live.ok()) return rows_->Error("live files: " + live.status().message());
  follow::FollowerOptions options;
  options.poll = 0.05;
  options.max_page_bytes = 200;  // several pages a scan
  auto made = follow::Follower::Create(source.value().get(), live.value().get(), options);
  if (!made.ok()) return rows_->Error("follower: " + made.status().message());
  follow::Follower& follower = *made.value();
  std::vector<pollfd> descriptors;
  // A follower that starts again gets the kept versions.
  for (uint64_t offered = rows_->published > 10 ? rows_->published - 10 : 0; !rows_->stop;) {
    for (; offered < rows_->published; ++offered) {
      const ServedVersion& version = rows_->versions[offered + 1];
      std::vector<Position> cut;
      for (const auto& position : version.cut) cut.push_back({position[0], position[1]});
      follow::Version offer;
      offer.number = offered + 1;
      const Status status = follower.Offer(offer, std::move(cut));
      if (!status.ok()) return rows_->Error("an offer: " + status.message());
    }
    const double pause = follower.Step();
    descriptors.clear();
    source.value()->Descriptors(&descriptors);
    poll(descriptors.data(), descriptors.size(), static_cast<int>(std::clamp(pause * 1000, 1.0, 20.0)));
  }
}

void ServedFleet::Publish() {
  RedisCluster cluster(address_);
  while (!rows_->stop) {
    const uint64_t number = rows_->published + 1;
    if (number == kMostVersions) return rows_->Error("too many versions");
    ServedVersion& version = rows_->versions[number];
    for (Key key = 0; key < kServedKeys; ++key) version.least[key] = rows_->rows[key].LastAcked();
    std::vector<RedisCluster::Command> stats;
    for (const std::string& key : PartitionKeys("", kServedPartitions))
      stats.push_back({key, {"HET.STAT", key}});
    std::vector<het::RedisReply> replies;
    if (!(cluster.known() || cluster.Refresh(5).ok()) || !cluster.AskAll(stats, 5, &replies).ok()) {
      Sleep(50000);
      continue;
    }
    for (uint32_t p = 0; p < kServedPartitions; ++p) {
      const auto& fields = replies[p].array;
      for (size_t i = 0; i + 1 < fields.size(); i += 2) {
        const auto& value = fields[i + 1];
        const uint64_t as_number = value.kind == het::RedisReply::kInteger
                                       ? static_cast<uint64_t>(value.integer)
                                       : std::strtoull(value.text().c_str(), nullptr, 10);
        if (fields[i].text() == "incarnation") version.cut[p][0] = as_number;
        if (fields[i].text() == "changes") version.cut[p][1] = as_number;
      }
    }
    version.ready = true;
    rows_->published = number;
    Sleep(100000);
  }
}

void ServedFleet::Read() {
  auto opened = follow::LiveReader::Open(folder_.path() + "/live", {folder_.path() + "/t.het"});
  if (!opened.ok()) return rows_->Error("reader: " + opened.status().message());
  follow::LiveReader& reader = *opened.value();
  std::vector<Key> keys;
  for (Key key = 0; key < kServedKeys; ++key) keys.push_back(key);
  std::vector<float> values(keys.size() * RemoteWorker::kDim);
  std::vector<uint64_t> newest(kServedKeys);
  while (!rows_->stop) {
    const auto state = reader.state();
    uint64_t seen = 0;
    const follow::LiveRead read = {0, keys, values.data()};
    const Status status = reader.Lookup({&read, 1}, &seen);
    if (!state.ok() || !status.ok()) return rows_->Error("a lookup: " + status.message());
    for (const Key key : keys) {
      const uint64_t event = rows_->Check(key, values.data() + key * RemoteWorker::kDim, RemoteWorker::kDim,
                                          seen, state.value().version.number);
      if (event < newest[key] && key < kServedKeys - kRemovedKeys) {
        rows_->Error("key " + std::to_string(key) + " went back from event " + std::to_string(newest[key]) +
                     " to " + std::to_string(event));
      }
      newest[key] = event;
    }
    rows_->last_seen = seen;
    rows_->in_force = state.value().version.number;
    Sleep(500);
  }
}

}  // namespace het::testing
