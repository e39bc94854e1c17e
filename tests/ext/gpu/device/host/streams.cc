#include "tests/ext/gpu/device/host/streams.h"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/testing/random.h"

namespace het::dev::streams {
namespace {

constexpr uint64_t kNever = ~uint64_t{0};

struct Work {
  std::function<void()> run;
  Point after;  // comes first
};

struct Stream {
  std::deque<Work> work;
  uint64_t done = 0;
  uint64_t waits = 0;
  uint64_t held_from = kNever;  // work with this number is not done yet
};

// All streams of the process. The lock is held while work is done, so threads see what they waited for.
class Streams {
 public:
  static Streams& Get() {
    static Streams* const streams = new Streams;  // never freed: the library may be used until the very end
    return *streams;
  }

  void Put(HetDevStream stream, uint64_t operations, std::function<void()> work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_[stream].work.push_back({std::move(work), {}});
    operations_ += operations;
  }
  void PutWait(HetDevStream stream, const Point& point) {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_[stream].work.push_back({[] {}, point});
  }
  Point Here(HetDevStream stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Stream& of = streams_[stream];
    return {stream, of.done + of.work.size()};
  }
  void WaitFor(const Point& point) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Stream& of = streams_[point.stream];
    if (of.done >= point.end) return;
    ++of.waits;
    ++waits_;
    while (of.done < point.end) DoOne();
  }
  void WaitForAll() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++waits_;
    while (DoOne()) {
    }
  }
  void Finish() {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (DoOne()) {
    }
  }
  uint64_t WaitsOf(HetDevStream stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return streams_[stream].waits;
  }
  uint64_t waits() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return waits_;
  }
  void Hold(HetDevStream stream, bool hold) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Stream& of = streams_[stream];
    of.held_from = hold ? of.done + of.work.size() : kNever;
  }

  void Seed(uint64_t seed) {
    const std::lock_guard<std::mutex> lock(mutex_);
    random_ = testing::Random(seed);
  }
  uint64_t operations() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return operations_;
  }
  void FailLaunch(uint64_t n) {
    const std::lock_guard<std::mutex> lock(mutex_);
    fail_launch_ = n;
  }
  bool LaunchWorks() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (fail_launch_ == 0 || --fail_launch_ > 0) return true;
    launch_failed_ = true;
    return false;
  }
  bool TakeFailedLaunch() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(launch_failed_, false);
  }
  void Break(bool broken) {
    const std::lock_guard<std::mutex> lock(mutex_);
    broken_ = broken;
  }
  bool broken() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return broken_;
  }
  uint64_t DrawInWork() { return random_.Next(); }  // the caller holds the lock: work is being done

 private:
  // The first work of one of the streams that have any. Returns false if there is none, or none that may be.
  bool DoOne() {
    std::vector<Stream*> ready;
    bool any = false;
    for (auto& [name, stream] : streams_) {
      if (stream.work.empty()) continue;
      any = true;
      const Point& after = stream.work.front().after;
      if (stream.done < stream.held_from && streams_[after.stream].done >= after.end)
        ready.push_back(&stream);
    }
    if (!any) return false;
    if (ready.empty()) {
      std::fprintf(stderr, "the host waits for work that is held back (HetDevHostHold)\n");
      std::abort();
    }
    Stream* const chosen = random_.Pick(ready);
    chosen->work.front().run();
    chosen->work.pop_front();
    ++chosen->done;
    return true;
  }

  std::mutex mutex_;
  std::map<HetDevStream, Stream> streams_;
  testing::Random random_{1};
  uint64_t operations_ = 0;
  uint64_t waits_ = 0;
  uint64_t fail_launch_ = 0;
  bool launch_failed_ = false;
  bool broken_ = false;
};

}  // namespace

void Put(HetDevStream stream, uint64_t operations, std::function<void()> work) {
  Streams::Get().Put(stream, operations, std::move(work));
}
void PutWait(HetDevStream stream, const Point& point) { Streams::Get().PutWait(stream, point); }
Point Here(HetDevStream stream) { return Streams::Get().Here(stream); }
void WaitFor(const Point& point) { Streams::Get().WaitFor(point); }
void WaitForAll() { Streams::Get().WaitForAll(); }
bool LaunchWorks() { return Streams::Get().LaunchWorks(); }
bool IsBroken() { return Streams::Get().broken(); }
bool TakeFailedLaunch() { return Streams::Get().TakeFailedLaunch(); }
uint64_t Draw() { return Streams::Get().DrawInWork(); }

}  // namespace het::dev::streams

void HetDevHostSeed(uint64_t seed) { het::dev::streams::Streams::Get().Seed(seed); }
uint64_t HetDevHostOperations() { return het::dev::streams::Streams::Get().operations(); }
uint64_t HetDevHostWaits(HetDevStream stream) { return het::dev::streams::Streams::Get().WaitsOf(stream); }
uint64_t HetDevHostAllWaits() { return het::dev::streams::Streams::Get().waits(); }
void HetDevHostFinish() { het::dev::streams::Streams::Get().Finish(); }
void HetDevHostHold(HetDevStream stream, int hold) {
  het::dev::streams::Streams::Get().Hold(stream, hold != 0);
}
void HetDevHostBreak(int broken) { het::dev::streams::Streams::Get().Break(broken != 0); }
void HetDevHostFailLaunch(uint64_t n) { het::dev::streams::Streams::Get().FailLaunch(n); }
