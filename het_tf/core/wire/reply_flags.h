// The bits of a reply frame's flags (parts.h), for its encoder and its decoder.
#pragma once

#include <cstdint>

namespace het::frame::reply {

// Flags of a part.
constexpr uint8_t kPartition = 1;  // not the previous part's + 1
constexpr uint8_t kRequestId = 2;  // not the previous part's + 1
constexpr uint8_t kInc = 4;
constexpr uint8_t kLastSeq = 8;  // not the newest that the request names
constexpr uint8_t kStatus = 16;  // not kOk
constexpr uint8_t kNotified = 32;
constexpr uint8_t kSubscriptionReset = 64;
constexpr uint8_t kTables = 128;
// Flags of a table, with those of frame_bytes.h.
constexpr uint8_t kRefreshed = 4;
constexpr uint8_t kFetched = 8;
constexpr uint8_t kLags = 16;
constexpr uint8_t kEpoch = 32;  // only if the part's status is kEpoch
constexpr uint8_t kNotifiedKeys = 64;
constexpr uint8_t kNames = 32;  // of the notified keys; only if the part's status is another

// A limit on the buckets of a histogram of lags.
constexpr uint64_t kBucketCounts = 66;

}  // namespace het::frame::reply
