// Ctrl-C within an op of a step, before it waits for its server.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/testing/process.h"
#include "tests/testing/table_specs.h"

namespace het::testing {
namespace {

// The server answers nothing any more once a signal came, which it does when ids are next sorted.
class Deaf : public LocalTransport {
 public:
  using LocalTransport::LocalTransport;
  PartitionId id(uint32_t partition) const override {
    if (press_.exchange(false)) {
      deaf_ = true;
      raise(SIGINT);
    }
    return LocalTransport::id(partition);
  }
  void Send(OutFrame frame) override {
    if (!deaf_) LocalTransport::Send(std::move(frame));
  }
  bool Poll(double seconds, std::vector<Event>* events) override {
    if (!deaf_) return LocalTransport::Poll(seconds, events);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return false;
  }
  double Now() override { return now_ += 0.01; }  // the deadline comes, but later

  void Press() { press_ = true; }
  void Hear() { deaf_ = false; }

 private:
  mutable std::atomic<bool> press_{false}, deaf_{false};
  double now_ = 0;
};

// Defect: the scope of the signal begins with the wait. The signal is then Python's, which has it behind the
// op.
TEST(InterruptedStep, ASignalBeforeTheWaitEndsIt) {
  static std::atomic<int> caught{0};
  const auto before = signal(SIGINT, [](int) { ++caught; });
  LocalService service(5, /*hash_seed=*/77);
  auto transport = std::make_unique<Deaf>(&service);
  Deaf* const server = transport.get();
  CacheConfig cache;
  cache.capacity = 100;
  Process process(NewSpec("t", Process::kDim, "row_wise_adagrad"), &service, cache, std::move(transport));
  process.Lookup({1, 2});
  server->Press();
  std::vector<float> rows;
  EXPECT_TRUE(Fails(process.TryLookup({3, 4}, &rows), Code::kCancelled));
  while (caught == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server->Hear();
  signal(SIGINT, before);
}

}  // namespace
}  // namespace het::testing
