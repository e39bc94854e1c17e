// How fast do rows travel between a worker and the parameter server? Beside a raw server over the
// same partitions (raw_server.h), in turns, in one run. run.py starts the servers.
//
//   ps_throughput --redis ADDRESS --redis-unix ADDRESS --redis-tls ADDRESS --dir DIR
//                 [--dim D] [--rows N] [--rounds K]
//       JSON: for each system the seconds of each round's pull and push of N rows, and those of small
//       requests
//
// A pull or push has a part for each of the 64 partitions, in frames as a worker makes them (64 KiB
// of rows at most, or one part), all sent at once; its time is that from the first send to the last
// answer. Frames are made beforehand and answers are not decoded: both cost a client the same with
// any server. All servers run on the last processor and the client on the first, so that a ratio does not
// tell where the kernel happened to wake a process.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/ps_throughput/raw_server.h"
#include "het_tf/core/store/local_service.h"
#include "het_tf/core/wire/layout.h"
#include "het_tf/core/wire/parts.h"
#include "het_tf/ext/ps/client/redis_store.h"
#include "het_tf/ext/ps/client/redis_transport.h"

namespace het::bench {
namespace {

constexpr uint32_t kPartitions = 64;
constexpr double kSeconds = 30;                      // until a server that does not answer is given up
constexpr size_t kFrameRowBytes = size_t{64} << 10;  // as the client's
constexpr size_t kSmallRows = 1000;
constexpr size_t kSmallRequests = 40;  // of each kind in a round

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "ps_throughput: %s\n", what.c_str());
  std::exit(1);
}

// This process, and those that it forks from now on.
void RunOn(long processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(processor), &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0)
    Die("cannot run on processor " + std::to_string(processor));
}

Schema MakeSchema(uint32_t dim) {
  TableSpec spec;
  spec.name = "bench" + std::to_string(dim);
  spec.dim = dim;
  spec.optimizer.name = "sgd";  // a row is its value, as in the figures that we compare with
  return TableSchema::Create(spec).value();
}

// One transport, and what a client has to know to use it.
class System {
 public:
  System(std::string name, std::unique_ptr<Transport> transport, const Schema& schema)
      : name_(std::move(name)),
        transport_(std::move(transport)),
        schema_(schema),
        client_{RandomId(), RandomId()} {
    seq_.resize(transport_->partitions());
    epochs_.resize(transport_->partitions());
    for (uint32_t p = 0; p < transport_->partitions(); ++p) {
      const Reply reply = One(MakeRequest(p, {}, {}, {}));
      if (reply.tables.size() != 1) Die(name_ + ": " + reply.message);
      epochs_[p] = reply.tables[0].epoch;
    }
  }

  const std::string& name() const { return name_; }

  double Pull(const std::vector<std::vector<Key>>& keys) { return Exchange(keys, false); }
  double Push(const std::vector<std::vector<Key>>& keys) { return Exchange(keys, true); }

 private:
  Request MakeRequest(uint32_t p, const std::vector<Key>& push, const std::vector<Key>& fetch,
                      const std::vector<float>& wire) {
    Request q;
    q.request_id = ++requests_;
    q.partition = transport_->id(p);
    q.client = client_;
    q.seq = push.empty() ? 0 : ++seq_[p];
    q.tables.emplace_back();
    TableRequest& t = q.tables.back();
    t.table = schema_->id();
    t.epoch = epochs_[p];
    t.update_floats = static_cast<uint32_t>(schema_->optimizer().wire_floats());
    t.push_keys.assign(push.begin(), push.end());
    t.push_ticks.assign(push.size(), 1);
    t.push_updates.assign(wire.begin(), wire.begin() + static_cast<ptrdiff_t>(push.size() * t.update_floats));
    t.fetch_keys.assign(fetch.begin(), fetch.end());
    for (Vector<Key>* keys : {&t.push_keys, &t.fetch_keys}) std::sort(keys->begin(), keys->end());
    return q;
  }

  Reply One(const Request& request) {
    transport_->Send(EncodeFrame({&request, 1}, transport_->Buffer(0)));
    Receive(1);
    Reply reply;
    if (!Decode(Span<const uint8_t>(events_[0].bytes.data(), events_[0].bytes.size()), &reply).ok())
      Die(name_ + ": an answer that is no frame");
    return reply;
  }

  void Receive(size_t count) {
    for (Transport::Event& event : events_) transport_->Recycle(std::move(event.bytes));
    events_.clear();
    const double begin = transport_->Now();
    while (events_.size() < count) {
      transport_->Poll(1, &events_);
      if (transport_->Now() - begin > 60) Die(name_ + ": no answer for 60 s");
    }
    for (const Transport::Event& event : events_) {
      if (event.kind != Transport::Event::kReply) Die(name_ + ": " + event.reason);
    }
  }

  double Exchange(const std::vector<std::vector<Key>>& keys, bool push) {
    size_t most = 0;
    for (const auto& of : keys) most = std::max(most, of.size());
    const std::vector<float> wire(most * schema_->optimizer().wire_floats(), 0.5f);
    std::vector<OutFrame> frames;
    std::vector<Request> gathered;  // parts of the next frame
    size_t bytes = 0;               // of their rows
    const auto flush = [&] {
      if (!gathered.empty())
        frames.push_back(EncodeFrame({gathered.data(), gathered.size()}, transport_->Buffer(0)));
      gathered.clear();
      bytes = 0;
    };
    const std::vector<Key> none;
    for (uint32_t p = 0; p < keys.size(); ++p) {
      if (keys[p].empty()) continue;
      const size_t of_part = keys[p].size() * schema_->row_floats() * sizeof(float);
      if (bytes + of_part > kFrameRowBytes) flush();
      gathered.push_back(MakeRequest(p, push ? keys[p] : none, push ? none : keys[p], wire));
      bytes += of_part;
    }
    flush();
    const double begin = transport_->Now();
    for (OutFrame& frame : frames) transport_->Send(std::move(frame));
    Receive(frames.size());
    const double seconds = transport_->Now() - begin;
    Verify(keys, push);
    return seconds;
  }

  // A server that does nothing is fast.
  void Verify(const std::vector<std::vector<Key>>& keys, bool push) {
    for (const Transport::Event& event : events_) {
      ReplyParts parts;
      Status read = parts.Open({event.bytes.data(), event.bytes.size()});
      while (read.ok() && !parts.done()) {
        Reply reply;
        read = parts.Next(&reply);
        if (!read.ok()) break;
        if (reply.status != FrameStatus::kOk) Die(name_ + ": a frame was refused: " + reply.message);
        if (push) continue;
        const TableReply& t = reply.tables.at(0);
        if (t.rows.size() != keys[reply.partition].size() * t.row_floats) Die(name_ + ": rows are missing");
      }
      if (!read.ok()) Die(name_ + ": an answer that is no frame: " + read.message());
    }
  }

  const std::string name_;
  const std::unique_ptr<Transport> transport_;
  const Schema schema_;
  const ClientId client_;
  uint32_t requests_ = 0;
  std::vector<uint64_t> seq_;
  std::vector<uint64_t> epochs_;
  std::vector<Transport::Event> events_;
};

// The first `rows` keys, by partition, all over them as rows of many tables lie; `only` >= 0: all in that
// one.
std::vector<std::vector<Key>> SomeKeys(size_t rows, uint64_t hash_seed, int only = -1) {
  const TableLayout everywhere{0, 1, kPartitions, hash_seed};
  std::vector<std::vector<Key>> keys(kPartitions);
  size_t taken = 0;
  for (Key key = 0; taken < rows; ++key) {
    const uint32_t p = everywhere.OfKey(key);
    if (only >= 0 && p != static_cast<uint32_t>(only)) continue;
    keys[p].push_back(key);
    ++taken;
  }
  return keys;
}

std::unique_ptr<Transport> ConnectRedis(const std::string& text, const Schema& schema, uint64_t* hash_seed) {
  const auto address = ParseServerAddress(text);
  if (!address.ok()) Die(address.status().message());
  const auto tell = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); };
  auto store = RedisStore::Open(address.value(), "bench", kSeconds, tell);
  if (!store.ok()) Die(store.status().message());
  const Status made = store.value()->CreateTable(schema);
  if (!made.ok()) Die(made.message());
  if (store.value()->keys().size() != kPartitions)
    Die("the namespace 'bench' has another number of partitions");
  *hash_seed = store.value()->hash_seed();
  RedisCluster cluster(address.value());
  const Status known = cluster.Refresh(kSeconds);
  if (!known.ok()) Die(known.message());
  return std::make_unique<RedisTransport>(std::move(cluster), store.value()->keys(), *hash_seed);
}

struct Options {
  std::string redis, redis_unix, redis_tls, dir;
  uint32_t dim = 16;
  size_t rows = 50000;
  size_t rounds = 20;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* value = argv[i + 1];
    if (name == "--redis") {
      options.redis = value;
    } else if (name == "--redis-unix") {
      options.redis_unix = value;
    } else if (name == "--redis-tls") {
      options.redis_tls = value;
    } else if (name == "--dir") {
      options.dir = value;
    } else if (name == "--dim") {
      options.dim = static_cast<uint32_t>(std::atoi(value));
    } else if (name == "--rows") {
      options.rows = static_cast<size_t>(std::atoll(value));
    } else if (name == "--rounds") {
      options.rounds = static_cast<size_t>(std::atoll(value));
    } else {
      Die("unknown option " + name);
    }
  }
  const bool all = !options.redis.empty() && !options.redis_unix.empty() && !options.redis_tls.empty();
  if (!all || options.dir.empty()) Die("give --redis, --redis-unix, --redis-tls and --dir; run.py does");
  return options;
}

void PrintList(const char* name, const std::vector<double>& values, const char* end) {
  std::printf("\"%s\": [", name);
  for (size_t i = 0; i < values.size(); ++i) std::printf("%s%.9f", i == 0 ? "" : ", ", values[i]);
  std::printf("]%s", end);
}

void Compare(const Options& options) {
  const Schema schema = MakeSchema(options.dim);
  // The raw servers are forked before there is anything else in this process.
  RunOn(sysconf(_SC_NPROCESSORS_ONLN) - 1);
  RawServer raw_tcp("", kPartitions, 0, schema);
  RawServer raw_unix(options.dir + "/raw.sock", kPartitions, 0, schema);
  RunOn(0);
  struct Entry {
    std::unique_ptr<System> system;
    std::vector<std::vector<Key>> large, spread, single;
    std::vector<double> pull, push, spread_pull, spread_push, single_pull, single_push;
  };
  std::vector<Entry> entries;
  auto add = [&](const char* name, std::unique_ptr<Transport> transport, uint64_t hash_seed) {
    Entry entry;
    entry.system = std::make_unique<System>(name, std::move(transport), schema);
    entry.large = SomeKeys(options.rows, hash_seed);
    entry.spread = SomeKeys(kSmallRows, hash_seed);
    entry.single = SomeKeys(kSmallRows, hash_seed, 5);
    entries.push_back(std::move(entry));
  };
  uint64_t hash_seed = 0;
  add("raw TCP", std::make_unique<RawTransport>(raw_tcp, kPartitions, 0), 0);
  add("raw Unix", std::make_unique<RawTransport>(raw_unix, kPartitions, 0), 0);
  auto redis = ConnectRedis(options.redis, schema, &hash_seed);
  add("Redis TCP", std::move(redis), hash_seed);
  redis = ConnectRedis(options.redis_unix, schema, &hash_seed);
  add("Redis Unix", std::move(redis), hash_seed);
  redis = ConnectRedis(options.redis_tls, schema, &hash_seed);
  add("Redis TLS", std::move(redis), hash_seed);
  for (Entry& entry : entries) {
    for (const auto& keys : {entry.large, entry.single}) entry.system->Push(keys);  // makes the rows
  }
  for (size_t round = 0; round < options.rounds; ++round) {
    for (Entry& entry : entries) entry.pull.push_back(entry.system->Pull(entry.large));
    for (Entry& entry : entries) entry.push.push_back(entry.system->Push(entry.large));
    for (size_t i = 0; i < kSmallRequests; ++i) {
      for (Entry& entry : entries) entry.spread_pull.push_back(entry.system->Pull(entry.spread));
      for (Entry& entry : entries) entry.spread_push.push_back(entry.system->Push(entry.spread));
      for (Entry& entry : entries) entry.single_pull.push_back(entry.system->Pull(entry.single));
      for (Entry& entry : entries) entry.single_push.push_back(entry.system->Push(entry.single));
    }
  }
  std::printf("{");
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    std::printf("%s\"%s\": {", i == 0 ? "" : ", ", entry.system->name().c_str());
    PrintList("pull", entry.pull, ", ");
    PrintList("push", entry.push, ", ");
    PrintList("small pull, 64 partitions", entry.spread_pull, ", ");
    PrintList("small push, 64 partitions", entry.spread_push, ", ");
    PrintList("small pull, 1 partition", entry.single_pull, ", ");
    PrintList("small push, 1 partition", entry.single_push, "}");
  }
  std::printf("}\n");
}

}  // namespace
}  // namespace het::bench

int main(int argc, char** argv) {
  het::bench::Compare(het::bench::Parse(argc, argv));
  return 0;
}
