#include "tests/ext/gpu/device/host/streams.h"

#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "tests/testing/random.h"

namespace het::dev::streams {
namespace {

constexpr uint64_t kNever = ~uint64_t{0};

struct Work {
  std::function<void()> run;
  Point after;  // comes first
};

struct Stream {
  uint64_t end() const { return done + work.size(); }

  std::deque<Work> work;
  uint64_t done = 0;
  uint64_t waits = 0;
  uint64_t held_from = kNever;  // work with this number is not done yet
};

// All streams of the process, also those that were destroyed: points may be on them.
struct Streams {
  void Put(HetDevStream stream, Work work) {
    Stream& put_on = of[stream];
    put_on.work.push_back(std::move(work));
    busy[stream] = &put_on;
  }
  // The first work of one of the streams that have any. Returns false if there is none, or none that may be.
  bool DoOne() {
    if (busy.empty()) return false;
    std::vector<HetDevStream> ready;
    for (const auto& [name, stream] : busy) {
      const Point& after = stream->work.front().after;
      if (stream->done < stream->held_from && of[after.stream].done >= after.end) ready.push_back(name);
    }
    if (ready.empty()) {
      std::fprintf(stderr, "the host waits for work that is held back (HetDevHostHold)\n");
      std::abort();
    }
    const HetDevStream chosen = random.Pick(ready);
    Stream& stream = *busy[chosen];
    stream.work.front().run();
    stream.work.pop_front();
    ++stream.done;
    if (stream.work.empty()) busy.erase(chosen);
    return true;
  }
  void DoAll() {
    while (DoOne()) {
    }
  }

  std::map<HetDevStream, Stream> of;
  std::map<HetDevStream, Stream*> busy;  // those that have work
  testing::Random random{1};
  uint64_t operations = 0;
  uint64_t waits = 0;
  uint64_t fail_launch = 0;
  bool launch_failed = false;
  bool broken = false;
};

Streams& All() {
  static Streams* const all = new Streams;  // never freed: the library may be used until the very end
  return *all;
}

// The lock is held while work is done, so threads see what they waited for.
template <typename F>
auto Locked(F f) {
  static std::mutex* const mutex = new std::mutex;
  const std::lock_guard<std::mutex> lock(*mutex);
  return f(All());
}

}  // namespace

void Put(HetDevStream stream, uint64_t operations, std::function<void()> work) {
  Locked([&](Streams& all) {
    all.Put(stream, {std::move(work), {}});
    all.operations += operations;
  });
}
void PutWait(HetDevStream stream, const Point& point) {
  Locked([&](Streams& all) { all.Put(stream, {[] {}, point}); });
}
Point Here(HetDevStream stream) {
  return Locked([&](Streams& all) { return Point{stream, all.of[stream].end()}; });
}
void WaitFor(const Point& point) {
  Locked([&](Streams& all) {
    Stream& of = all.of[point.stream];
    if (of.done >= point.end) return;
    ++of.waits;
    ++all.waits;
    while (of.done < point.end) all.DoOne();
  });
}
void WaitForAll() {
  Locked([](Streams& all) {
    ++all.waits;
    all.DoAll();
  });
}
bool LaunchWorks() {
  return Locked([](Streams& all) {
    if (all.fail_launch == 0 || --all.fail_launch > 0) return true;
    all.launch_failed = true;
    return false;
  });
}
bool TakeFailedLaunch() {
  return Locked([](Streams& all) { return std::exchange(all.launch_failed, false); });
}
bool IsBroken() {
  return Locked([](Streams& all) { return all.broken; });
}
uint64_t Draw() { return All().random.Next(); }  // work is being done: the lock is held

}  // namespace het::dev::streams

using het::dev::streams::kNever;
using het::dev::streams::Locked;
using het::dev::streams::Streams;

void HetDevHostSeed(uint64_t seed) {
  Locked([&](Streams& all) { all.random = het::testing::Random(seed); });
}
uint64_t HetDevHostOperations() {
  return Locked([](Streams& all) { return all.operations; });
}
uint64_t HetDevHostWaits(HetDevStream stream) {
  return Locked([&](Streams& all) { return all.of[stream].waits; });
}
uint64_t HetDevHostAllWaits() {
  return Locked([](Streams& all) { return all.waits; });
}
void HetDevHostFinish() {
  Locked([](Streams& all) { all.DoAll(); });
}
void HetDevHostHold(HetDevStream stream, int hold) {
  Locked([&](Streams& all) { all.of[stream].held_from = hold != 0 ? all.of[stream].end() : kNever; });
}
void HetDevHostBreak(int broken) {
  Locked([&](Streams& all) { all.broken = broken != 0; });
}
void HetDevHostFailLaunch(uint64_t n) {
  Locked([&](Streams& all) { all.fail_launch = n; });
}
