// The settings of a client: time limits, sizes of frames, and durability of pushes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "het_tf/core/base/trace_log.h"
#include "het_tf/core/wire/reply.h"

namespace het {

constexpr double kNoticeSeconds = 5;

// When an applied push is durable, so that it need not be kept.
enum class Durability { kApplied, kReplicated, kCheckpoint };

struct ClientConfig {
  // Determines random rounding. Clients of one store must have different ones, or they round alike.
  uint64_t seed = 0;
  double request_timeout = 10;  // seconds without a byte until an unanswered request counts as lost
  double deadline = 60;         // seconds without progress until a call gives up
  // Limit on the bytes of a flush's frames, about.
  size_t max_frame_bytes = size_t{16} << 20;
  // Limit on the answer to one request; a read of more rows is several requests.
  size_t max_read_bytes = kMostReadBytes;
  // A store that is out of memory fails the call at once: for a store that shares this process's
  // memory.
  bool fail_out_of_memory = false;
  // Tables whose keys are so far apart, in the mean, name them (wire/named_keys.h): a gap of 2^22 takes three
  // bytes, a name one or two.
  uint64_t far_keys = uint64_t{1} << 22;
  double first_backoff = 0.01;
  double max_backoff = 1;
  Durability durability = Durability::kApplied;
  uint32_t min_replicas = 1;      // kReplicated: number that hold a durable push
  double replica_interval = 0.1;  // kReplicated: seconds between two questions to the replicas
  // Limit on the bytes of applied frames that are kept; the frames of a step may exceed it. Then
  // kReplicated waits for the replicas, and kCheckpoint forgets the oldest ones.
  size_t keep_bytes = size_t{256} << 20;
  // Gets a text about a call that waits: first after kNoticeSeconds, then at ever longer intervals.
  std::function<void(const std::string&)> notice;
  // Records the times of calls while it is on; must outlive the client. Null: no record.
  TraceLog* trace = nullptr;
};

}  // namespace het
