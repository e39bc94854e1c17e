// What a worker does with the answers of a server that says anything:
// Decode(Reply), and the client behind it.
//
// An input is a row of answers, each behind its size in two bytes and a byte of
// flags: the client gets them in the order in which it asks. When they are used
// up nothing comes any more, and the client runs into its deadline, on a clock
// that is not real.

#include "het_tf/core/client/client.h"
#include "het_tf/core/wire/parts.h"
#include "tests/fuzz/target.h"
#include "tests/testing/test_step.h"

namespace het::fuzz {
namespace {

// The answer is given the number of the request that it answers: a client drops
// others unseen.
constexpr uint8_t kFitsRequest = 1;
constexpr uint8_t kCloses = 2;  // the connection closes behind it
constexpr uint8_t kRefuses = 4;
constexpr size_t kRequestId = 6;  // where it stands in a request
constexpr size_t kReplyId = 5;    // and in a reply

class Script : public Transport {
 public:
  explicit Script(Span<const uint8_t> input) : input_(input) {}

  uint32_t partitions() const override { return 1; }
  PartitionId id(uint32_t) const override { return {0, 1, 5}; }
  void Send(OutFrame frame) override { asked_.push_back(std::move(frame.bytes)); }
  bool Poll(double seconds, std::vector<Event> *events) override {
    now_ += seconds;
    for (const Mark &mark : marks_) {  // every second one is with a replica
      events->emplace_back();
      events->back().kind = Event::kReplicas;
      events->back().seq = mark.seq;
      events->back().replicas = mark.seq % 2;
    }
    const bool told = !marks_.empty();
    marks_.clear();
    if (told) return true;
    if (asked_.empty() || input_.size() - at_ < 3) return false;
    const size_t size = std::min<size_t>(input_[at_] + 256u * input_[at_ + 1], input_.size() - at_ - 3);
    const uint8_t flags = input_[at_ + 2];
    Event event;
    event.bytes.assign(input_.data() + at_ + 3, input_.data() + at_ + 3 + size);
    at_ += 3 + size;
    if ((flags & kFitsRequest) != 0 && size >= kReplyId + 4) {
      std::copy_n(asked_.front().begin() + kRequestId, 4, event.bytes.begin() + kReplyId);
    }
    asked_.erase(asked_.begin());
    if ((flags & kRefuses) != 0) {
      event.kind = Event::kRefused;
      event.reason = "refused";
    }
    events->push_back(std::move(event));
    if ((flags & kCloses) != 0) {
      asked_.clear();
      Event closed;
      closed.kind = Event::kClosed;
      closed.reason = "closed";
      events->push_back(std::move(closed));
    }
    return true;
  }
  void Reset(uint32_t) override { asked_.clear(); }
  uint64_t Connection(uint32_t) override { return 1; }
  void AskReplicas(const std::vector<Mark> &marks, uint32_t, double) override {
    for (const Mark &mark : marks) marks_.push_back(mark);
  }
  void Sleep(double seconds) override { now_ += seconds; }
  double Now() override { return now_; }

 private:
  const Span<const uint8_t> input_;
  size_t at_ = 0;
  std::vector<Bytes> asked_;
  std::vector<Mark> marks_;
  double now_ = 1;
};

ClientConfig Config(Durability durability) {
  ClientConfig config;
  config.request_timeout = 0.1;
  config.deadline = 0.2;
  config.durability = durability;
  return config;
}

void RunClient(Script *script, Durability durability) {
  Client client(script, Config(durability));
  ThreadPool pool(1);
  CacheConfig cache;
  cache.capacity = 5;
  cache.pull_bound = Bound(1, 2);
  cache.push_bound = 1;
  for (const Schema &schema : Schemas()) {
    if (!client.AddTable(schema, cache).ok()) Fail("no table");
  }
  for (uint64_t token = 1; token <= 4; ++token) {
    testing::TestStep step;
    for (const Schema &schema : Schemas()) {
      step.Add(*schema, script->id(0), {static_cast<Key>(token % 2), 1, 2, 3, INT64_MIN});
    }
    if (!client.Read(step.MakeRead(), token).ok()) continue;
    static_cast<void>(client.Write(step.MakeWrite(0.1f), token, &pool));
  }
  static_cast<void>(client.Flush());
}

Bytes Answer(const Reply &reply, uint8_t flags) {
  Bytes bytes;
  Encode(reply, &bytes);
  return Joined({SizeOf(bytes), {flags}, bytes});
}

Reply MakeReply(FrameStatus status, uint64_t inc, uint64_t last_seq, size_t fetched, size_t refreshed) {
  Reply reply;
  reply.status = status;
  reply.inc = inc;
  reply.last_seq = last_seq;
  if (status != FrameStatus::kOk && status != FrameStatus::kEpoch) return reply;
  for (const Schema &schema : Schemas()) {
    reply.tables.emplace_back();
    TableReply &t = reply.tables.back();
    t.table = schema->id();
    t.epoch = status == FrameStatus::kEpoch ? 7 : 0;
    if (status != FrameStatus::kOk) continue;
    t.row_floats = static_cast<uint32_t>(schema->row_floats());
    for (size_t i = 0; i < refreshed; ++i) {
      t.refreshed.push_back(static_cast<uint32_t>(i));
      t.refreshed_lags.push_back(static_cast<Clock>(5 + i));
    }
    for (size_t i = 0; i < fetched; ++i) t.fetched_clocks.push_back(static_cast<Clock>(i % 2));
    t.rows.insert(t.rows.end(), (refreshed + fetched / 2) * t.row_floats, 0.25f);
  }
  return reply;
}

std::vector<Bytes> Seeds() {
  const auto epoch = Answer(MakeReply(FrameStatus::kEpoch, 9, 0, 0, 0), kFitsRequest);
  const auto fetched = Answer(MakeReply(FrameStatus::kOk, 9, 0, 4, 0), kFitsRequest);
  const auto five = Answer(MakeReply(FrameStatus::kOk, 9, 0, 5, 0), kFitsRequest);
  const auto pushed = Answer(MakeReply(FrameStatus::kOk, 9, 1, 1, 3), kFitsRequest);
  const auto more = Answer(MakeReply(FrameStatus::kOk, 9, 2, 0, 4), kFitsRequest);
  const auto gap = Answer(MakeReply(FrameStatus::kGap, 9, 0, 0, 0), kFitsRequest);
  const auto reborn = Answer(MakeReply(FrameStatus::kGap, 10, 0, 0, 0), kFitsRequest);
  const auto full = Answer(MakeReply(FrameStatus::kOutOfMemory, 9, 0, 0, 0), kFitsRequest);
  const auto refused = Answer(MakeReply(FrameStatus::kOk, 9, 0, 0, 0), kFitsRequest | kRefuses);
  const auto closed = Answer(MakeReply(FrameStatus::kOk, 9, 1, 0, 0), kFitsRequest | kCloses);
  const auto no_table = Answer(MakeReply(FrameStatus::kNoTable, 9, 0, 0, 0), kFitsRequest);
  Reply moved = MakeReply(FrameStatus::kOk, 9, 1, 1, 3);
  moved.notified = 1;
  for (TableReply &t : moved.tables) t.notified_names = {1, 3};
  const auto named = Answer(moved, kFitsRequest);
  return {Joined({epoch, fetched, named, more, named}),
          Joined({epoch, fetched, pushed, more, more, more}),
          Joined({epoch, five, pushed, more, more, more}),
          Joined({epoch, fetched, gap, pushed, reborn, fetched, pushed, more}),
          Joined({full, refused, epoch, fetched, closed, pushed, more}),
          Joined({epoch, no_table, fetched, pushed})};
}

void Run(const uint8_t *data, size_t size) {
  const Span<const uint8_t> input(data, size);
  Reply reply;
  Within(Allowance(size), "reading a reply", [&] { static_cast<void>(Decode(input, &reply)); });
  Script script(input);
  constexpr Durability kKinds[] = {Durability::kApplied, Durability::kReplicated, Durability::kCheckpoint};
  RunClient(&script, kKinds[size % 3]);
}

const bool registered = Register({"reply", Run, Seeds});

}  // namespace
}  // namespace het::fuzz
