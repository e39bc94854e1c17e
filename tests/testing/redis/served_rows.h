// What writers did to rows, and when, in memory that processes share: the truth against which a read of
// served rows is checked (ext/serving/cc/follow).
//
// Each key has a list of events, written by one process. An event sets the row to a value; it begins before
// its request is sent, and is `acked` when the server has said that it is done (CLOCK_BOOTTIME), or never.
//
// A read that claims to be as new as the server was at `seen` may show event i if its successor was not acked
// by `seen`: then the claim would be false.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "het_tf/core/base/hash.h"
#include "tests/testing/redis/shared_memory.h"

namespace het::testing {

constexpr het::Key kServedKeys = 24;
constexpr het::Key kRemovedKeys = 8;  // the last ones: a writer removes them now and then
constexpr uint64_t kMostEvents = 1 << 15;
constexpr uint64_t kMostVersions = 4096;
constexpr uint32_t kServedPartitions = 6;

struct RowEvent {
  std::atomic<uint64_t> acked{0};  // 0: not yet
  std::atomic<float> value{0};
};

struct RowHistory {
  std::atomic<uint64_t> size{0};
  RowEvent events[kMostEvents];

  // Of the writer. Returns the event's number.
  uint64_t Begin(float value);
  void Ack(uint64_t event);
  // The number of the last acked event.
  uint64_t LastAcked() const;
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

  void Error(const std::string& what);
  // Checks a row that was read just now, of which the claim is that it is the server's of `seen` or newer.
  // The dense weights of `version` were read before. Returns the number of the newest event that it may be.
  uint64_t Check(het::Key key, const float* value, size_t dim, uint64_t seen, uint64_t version);
};

Shared<ServedRows> NewServedRows();

}  // namespace het::testing
