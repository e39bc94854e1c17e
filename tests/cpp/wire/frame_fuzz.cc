// Bounded mutational fuzzing of everything that reads bytes from elsewhere: Decode (both ways),
// Partition::Handle, Partition::Deserialize, LoadChunk and DecodeRows. Nothing may crash, no frame may make
// its reader take memory far beyond its own size, a frame that is refused leaves every row as it was, and a
// copy that is given what Handle says it needs is equal to the partition.
//
//   frame_fuzz [mutations a target] [seed]        (default: 30,000 * HET_TEST_SCALE, 1; about five seconds)
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "het_tf/core/store/chunk.h"
#include "het_tf/core/store/partition.h"
#include "tests/cpp/testing/copies.h"
#include "tests/cpp/testing/random.h"

namespace het::testing {
namespace {

constexpr uint64_t kEpoch = 7;

// Memory a reader may take for n bytes: a table of a frame takes 20 bytes there and some 200 here.
size_t Allowance(size_t n) { return 64 * n + 8192; }

[[noreturn]] void Fail(const char* what, uint64_t seed, const Bytes& bytes) {
  std::fprintf(stderr, "frame_fuzz: %s; seed %llu, %zu bytes:\n", what, static_cast<unsigned long long>(seed),
               bytes.size());
  for (uint8_t byte : bytes) std::fprintf(stderr, "%02x", byte);
  std::fprintf(stderr, "\n");
  std::exit(1);
}

Span<const uint8_t> View(const Bytes& bytes) { return {bytes.data(), bytes.size()}; }

// Flips, cuts, repeats, and writes the numbers that parsers trip over.
void Mutate(Random* r, const std::vector<Bytes>& corpus, Bytes* bytes) {
  for (uint64_t n = 1 + r->Below(4); n > 0; --n) {
    if (bytes->empty()) bytes->push_back(static_cast<uint8_t>(r->Next()));
    const size_t at = r->Below(bytes->size());
    switch (r->Below(8)) {
      case 0:
        (*bytes)[at] ^= static_cast<uint8_t>(1u << r->Below(8));
        break;
      case 1:
        (*bytes)[at] = static_cast<uint8_t>(r->Next());
        break;
      case 2:
        bytes->resize(at);
        break;
      case 3:  // an enormous varint
        for (size_t i = at; i < bytes->size() && i < at + 9; ++i) (*bytes)[i] = 0xff;
        break;
      case 4: {
        const uint64_t value =
            r->Pick<uint64_t>({0, 1, 0x7fffffff, 0x80000000, UINT64_MAX, uint64_t{1} << 63});
        for (size_t i = 0; i < 8 && at + i < bytes->size(); ++i)
          (*bytes)[at + i] = static_cast<uint8_t>(value >> 8 * i);
        break;
      }
      case 5: {
        const size_t size = std::min<size_t>(r->Below(40), bytes->size() - at);
        const Bytes part(bytes->begin() + static_cast<ptrdiff_t>(at),
                         bytes->begin() + static_cast<ptrdiff_t>(at + size));
        bytes->insert(bytes->begin() + static_cast<ptrdiff_t>(at), part.begin(), part.end());
        break;
      }
      case 6: {
        const size_t size = std::min<size_t>(r->Below(20), bytes->size() - at);
        bytes->erase(bytes->begin() + static_cast<ptrdiff_t>(at),
                     bytes->begin() + static_cast<ptrdiff_t>(at + size));
        break;
      }
      default: {  // the end of another
        const Bytes& other = r->Pick(corpus);
        const size_t from = r->Below(other.size() + 1);
        bytes->resize(at);
        bytes->insert(bytes->end(), other.begin() + static_cast<ptrdiff_t>(from), other.end());
      }
    }
  }
}

Schema MakeSchema(const std::string& name, const std::string& optimizer, uint32_t dim) {
  TableSpec spec;
  spec.name = name;
  spec.dim = dim;
  spec.optimizer.name = optimizer;
  if (name == "a") {
    spec.limits = TableLimits();
    spec.limits->ttl = 5;
    spec.limits->max_rows = 25;
  }
  return TableSchema::Create(spec).value();
}

// `seq` and `after_seq` fit the partition, so that frames get past the first checks.
Request SomeRequest(Random* r, const std::vector<Schema>& schemas, uint64_t seq) {
  Request q;
  q.request_id = static_cast<uint32_t>(r->Next());
  q.partition = {0, 1, 5};
  q.client = {1, 2};
  q.seq = r->Chance(0.3) ? 0 : seq;
  q.tables.resize(r->Below(4));
  for (TableRequest& t : q.tables) {
    const Schema& schema = r->Pick(schemas);
    t.table = schema->id();
    t.epoch = kEpoch;
    t.update_floats = static_cast<uint32_t>(schema->optimizer().wire_floats());
    for (uint64_t n = r->Below(6); n > 0; --n) {
      t.push_keys.push_back(r->Between(-20, 20));
      t.push_ticks.push_back(static_cast<uint32_t>(r->Between(1, 3)));
      for (uint32_t i = 0; i < t.update_floats; ++i) t.push_updates.push_back(1);
    }
    t.bound = r->Chance(0.3) ? kUnbounded : r->Between(0, 5);
    for (uint64_t n = r->Below(6); n > 0; --n) {
      t.check_keys.push_back(r->Between(-20, 20));
      t.check_clocks.push_back(r->Between(0, 5));
    }
    for (uint64_t n = r->Below(6); n > 0; --n) t.fetch_keys.push_back(r->Between(-20, 20));
  }
  return q;
}

class Fuzzer {
 public:
  explicit Fuzzer(uint64_t seed) : seed_(seed), random_(seed) {
    schemas_ = {MakeSchema("a", "sgd", 2), MakeSchema("b", "adam", 3), MakeSchema("c", "ftrl", 1)};
    Reset();
  }

  void Run(uint64_t mutations) {
    for (uint64_t i = 0; i < mutations; ++i) OneFrame();
    for (uint64_t i = 0; i < mutations; ++i) OneReply();
    for (uint64_t i = 0; i < mutations; ++i) OnePartition();
    for (uint64_t i = 0; i < mutations; ++i) OneChunk();
    std::printf(
        "frame_fuzz: %llu mutations of each; requests: %llu applied, %llu refused; decoded replies: %llu; "
        "restored partitions: %llu, loaded chunks: %llu\n",
        static_cast<unsigned long long>(mutations), static_cast<unsigned long long>(applied_),
        static_cast<unsigned long long>(refused_), static_cast<unsigned long long>(decoded_),
        static_cast<unsigned long long>(restored_), static_cast<unsigned long long>(loaded_));
    // A fuzzer that never gets past the door has shown nothing.
    if (applied_ == 0 || refused_ == 0 || decoded_ == 0 || restored_ == 0 || loaded_ == 0 || swept_ == 0) {
      std::fprintf(stderr, "frame_fuzz: a path was never taken\n");
      std::exit(1);
    }
  }

 private:
  void Reset() {
    partition_ = std::make_unique<Partition>(PartitionId{0, 1, 5}, 99);
    copy_ = std::make_unique<Partition>(PartitionId{0, 1, 5}, 98);
    for (const Schema& schema : schemas_) {
      if (!partition_->CreateTable(schema, kEpoch, now_).ok()) std::abort();
      if (!copy_->CreateTable(schema, kEpoch, now_).ok()) std::abort();
    }
  }
  Bytes State() { return StateOf(*partition_); }
  static Bytes StateOf(const Partition& partition) {
    Bytes bytes;
    partition.Serialize(&bytes);
    return bytes;
  }
  template <typename Fn>
  void Bounded(const char* what, const Bytes& bytes, Fn fn) {
    SetAllocLimit(AllocatedBytes() + Allowance(bytes.size()));
    bool threw = false;
    try {
      fn();
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    SetAllocLimit(SIZE_MAX);
    if (threw) Fail(what, seed_, bytes);
  }
  void Remember(std::vector<Bytes>* corpus, const Bytes& bytes) {
    if (corpus->size() < 64) {
      corpus->push_back(bytes);
    } else {
      (*corpus)[random_.Below(64)] = bytes;
    }
  }

  void OneFrame() {
    if (partition_->Find(schemas_[1]->id())->rows().size() > 2000) Reset();
    Bytes frame;
    Encode(SomeRequest(&random_, schemas_, partition_->LastSeq({1, 2}) + 1), &frame);
    Remember(&requests_, frame);
    if (random_.Chance(0.9)) Mutate(&random_, requests_, &frame);
    Request decoded;
    bool good = false;
    Bounded("Decode(Request) takes too much memory", frame,
            [&] { good = Decode(View(frame), &decoded).ok(); });
    if (good) {  // what was read can be written and read again
      Bytes again;
      Encode(decoded, &again);
      Request twice;
      if (!Decode(View(again), &twice).ok()) Fail("a request that was read cannot be written", seed_, frame);
    }
    const Bytes before = State();
    Bytes bytes;
    Bytes push;
    std::vector<Bytes> removals;
    now_ += static_cast<uint32_t>(random_.Below(2));
    const Handled handled = partition_->Handle(View(frame), &bytes, {now_, &push, &removals});
    if (handled.applied) {
      CopyHandles(View(frame), handled, push, removals, copy_.get());
      swept_ += !removals.empty();
      if (StateOf(*copy_) != State()) Fail("a copy is not equal", seed_, frame);
    }
    Reply reply;
    if (!Decode(View(bytes), &reply).ok()) Fail("Handle's reply cannot be read", seed_, frame);
    if (!good && reply.status != FrameStatus::kBadFrame)
      Fail("a frame that cannot be read was taken", seed_, frame);
    if (reply.status == FrameStatus::kOk) {
      ++applied_;
    } else {
      ++refused_;
      if (State() != before) Fail("a refused frame changed the partition", seed_, frame);
    }
    Remember(&replies_, bytes);
  }

  void OneReply() {
    Bytes bytes = random_.Pick(replies_);
    Mutate(&random_, replies_, &bytes);
    Reply reply;
    bool good = false;
    Bounded("Decode(Reply) takes too much memory", bytes, [&] { good = Decode(View(bytes), &reply).ok(); });
    decoded_ += good;
  }

  void OnePartition() {
    if (snapshots_.empty()) {
      for (int i = 0; i < 8; ++i) {
        Reset();
        for (int n = 0; n < 3 * i; ++n) {
          Bytes frame;
          Bytes reply;
          Encode(SomeRequest(&random_, schemas_, partition_->LastSeq({1, 2}) + 1), &frame);
          partition_->Handle(View(frame), &reply);
        }
        snapshots_.push_back(State());
      }
    }
    Bytes bytes = random_.Pick(snapshots_);
    Mutate(&random_, snapshots_, &bytes);
    // A row of any width takes its table's first rows with it.
    SetAllocLimit(AllocatedBytes() + Allowance(bytes.size()) + 64 * TableSchema::kMaxDim * sizeof(float));
    try {
      auto partition = Partition::Deserialize(View(bytes), 1);
      if (partition.ok()) {
        ++restored_;
        Bytes again;
        SetAllocLimit(SIZE_MAX);
        partition.value()->Serialize(&again);
        if (!Partition::Deserialize(View(again), 2).ok())
          Fail("a restored partition cannot be saved", seed_, bytes);
      }
    } catch (const std::bad_alloc&) {
      SetAllocLimit(SIZE_MAX);
      Fail("Deserialize takes too much memory", seed_, bytes);
    }
    SetAllocLimit(SIZE_MAX);
  }

  void OneChunk() {
    if (chunks_.empty()) {
      Reset();
      for (int n = 0; n < 20; ++n) {
        Bytes frame;
        Bytes reply;
        Encode(SomeRequest(&random_, schemas_, partition_->LastSeq({1, 2}) + 1), &frame);
        partition_->Handle(View(frame), &reply);
      }
      partition_->SetLoadMark({"somebody", 5, 6});
      ChunkWriter writer(*partition_, 300);
      for (Bytes chunk; writer.Next(&chunk);) chunks_.push_back(chunk);
      const std::vector<Key> keys = {1, 2, 3, -5};
      const std::vector<float> rows(keys.size() * schemas_[0]->row_floats());
      chunks_.emplace_back();
      EncodeSet(*schemas_[0], Span<const Key>(keys.data(), keys.size()), rows.data(), &chunks_.back());
      chunks_.emplace_back();
      EncodeRemove(*schemas_[0], Span<const Key>(keys.data(), keys.size()), &chunks_.back());
      const ClientId clients[] = {{1, 2}, {3, 4}};
      chunks_.emplace_back();
      EncodeForget(Span<const ClientId>(clients, 2), &chunks_.back());
    }
    if (partition_->Find(schemas_[0]->id())->rows().size() > 2000) Reset();
    Bytes bytes = random_.Pick(chunks_);
    Mutate(&random_, chunks_, &bytes);
    Bytes stamped;
    static_cast<void>(StampSet(View(bytes), now_, &stamped));
    RowBatch rows(*schemas_[0], size_t{1} << 16);
    static_cast<void>(DecodeRows(View(bytes), *schemas_[0], &rows));
    const Bytes before = State();
    if (LoadChunk(View(bytes), partition_.get()).ok()) {
      ++loaded_;
      if (partition_->shards().size() > 3) Reset();  // a table that the fuzzer has made up
    } else if (State() != before) {
      Fail("a refused chunk changed the partition", seed_, bytes);
    }
  }

  const uint64_t seed_;
  Random random_;
  std::vector<Schema> schemas_;
  uint32_t now_ = 1700000000;
  std::unique_ptr<Partition> partition_;
  std::unique_ptr<Partition> copy_;
  std::vector<Bytes> requests_;
  std::vector<Bytes> replies_;
  std::vector<Bytes> snapshots_;
  std::vector<Bytes> chunks_;
  uint64_t applied_ = 0;
  uint64_t refused_ = 0;
  uint64_t decoded_ = 0;
  uint64_t restored_ = 0;
  uint64_t loaded_ = 0;
  uint64_t swept_ = 0;
};

}  // namespace
}  // namespace het::testing

int main(int argc, char** argv) {
  const uint64_t mutations = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : het::testing::Scaled(30000);
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  het::testing::Fuzzer(seed).Run(mutations);
  return 0;
}
