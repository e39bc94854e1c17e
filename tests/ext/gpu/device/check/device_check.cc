// Plays random schedules against two libraries of ext/gpu/cc/abi.h and compares every answer, bit for bit;
// the second is the reference. Both are also checked against this program's own ledger of ticks and, where
// numbers are whole, of values.
//
//   device_check LIBRARY REFERENCE [--seed S] [--rounds N] [--round R] [--seconds T] [--size F]
//
// Needs only a C++17 compiler. A round is a function of (seed, round, size): on a difference the program
// prints how to play that round again. Given one library twice it checks that equal calls give equal bytes.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "tests/ext/gpu/device/check/library.h"
#include "tests/ext/gpu/device/check/world.h"
#include "tests/testing/random.h"

namespace {

using het::device_check::Library;
using het::device_check::Tally;
using het::device_check::World;
using het::device_check::WorldOptions;

struct Arguments {
  uint64_t seed = 1;
  uint64_t first = 0;
  uint64_t rounds = 0;  // 0: as many as take a few seconds, times HET_TEST_SCALE
  double seconds = 0;   // 0: no limit
  double size = 1;
  uint64_t operations = 60;
};

int Usage(const char* what) {
  std::fprintf(
      stderr,
      "%s\nusage: device_check LIBRARY REFERENCE [--seed S] [--rounds N] [--round R] [--seconds T] [--size F]"
      " [--operations N]\n",
      what);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return Usage("two libraries are needed");
  Arguments arguments;
  bool one = false;
  for (int i = 3; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) return Usage((name + " has no value").c_str());
    char* end = nullptr;
    const double value = std::strtod(argv[i + 1], &end);
    if (*end != '\0' || !(value >= 0))
      return Usage((name + ": " + argv[i + 1] + " is no number >= 0").c_str());
    if (name == "--seed") {
      arguments.seed = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (name == "--rounds") {
      arguments.rounds = static_cast<uint64_t>(value);
    } else if (name == "--round") {
      arguments.first = static_cast<uint64_t>(value);
      one = true;
    } else if (name == "--seconds") {
      arguments.seconds = value;
    } else if (name == "--size") {
      arguments.size = value;
    } else if (name == "--operations") {
      arguments.operations = static_cast<uint64_t>(value);
    } else {
      return Usage(("unknown argument " + name).c_str());
    }
  }
  std::string error;
  const auto tested = Library::Open(argv[1], &error);
  if (tested == nullptr) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 2;
  }
  const auto reference = Library::Open(argv[2], &error);
  if (reference == nullptr) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 2;
  }
  uint64_t rounds = arguments.rounds;
  if (one) {
    rounds = 1;
  } else if (rounds == 0) {
    rounds = arguments.seconds > 0 ? UINT64_MAX : het::testing::Scaled(150);
  }
  std::printf("%s (%s) against %s (%s), seed %llu\n", tested->info.executor, tested->info.name,
              reference->info.executor, reference->info.name,
              static_cast<unsigned long long>(arguments.seed));
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  Tally tally;
  uint64_t round = 0;
  for (; round < rounds && (arguments.seconds == 0 || seconds() < arguments.seconds); ++round) {
    WorldOptions options;
    options.seed = arguments.seed;
    options.round = arguments.first + round;
    options.size = arguments.size;
    options.operations = arguments.operations;
    std::string log;
    try {
      World world(*tested, *reference, options, &tally);
      try {
        world.Run();
      } catch (...) {
        log = world.Log();
        throw;
      }
    } catch (const std::exception& failure) {
      std::fflush(stdout);
      std::fprintf(
          stderr,
          "%sDIFFERENT: %s\nagain: device_check %s %s --seed %llu --round %llu --size %g --operations %llu\n",
          log.c_str(), failure.what(), argv[1], argv[2], static_cast<unsigned long long>(options.seed),
          static_cast<unsigned long long>(options.round), options.size,
          static_cast<unsigned long long>(options.operations));
      return 1;
    }
  }
  const std::pair<const char*, uint64_t> counts[] = {
      {"rounds", round},
      {"calls", tally.operations},
      {"lookups", tally.lookups},
      {"keys looked up", tally.keys},
      {"keys wanted", tally.wanted},
      {"keys trusted", tally.trusted},
      {"rows named by the store", tally.named},
      {"subscriptions ended", tally.resets},
      {"subscribed rows evicted", tally.left},
      {"rows that stayed with a call", tally.own_rows},
      {"dirty victims", tally.victims},
      {"ticks", tally.ticks},
      {"due updates", tally.due},
      {"due by their age", tally.due_by_age},
      {"ticks held back by age", tally.held_back_by_age},
      {"updates taken", tally.taken},
      {"ticks discarded", tally.discarded},
      {"rows fetched for a sum", tally.fetched_for_sum},
      {"sums not finite", tally.non_finite},
      {"bad arguments refused", tally.refused},
      {"allocations that failed", tally.out_of_memory},
  };
  for (const auto& [name, count] : counts) {
    std::printf("  %-30s %llu\n", name, static_cast<unsigned long long>(count));
  }
  std::printf("equal, in %.1f s\n", seconds());
  return 0;
}
