// The bits of a request frame's flags (parts.h), for its encoder and its decoder.
#pragma once

#include <cstddef>
#include <cstdint>

namespace het::frame::request {

// Flags of the frame.
constexpr uint8_t kPushes = 1;
constexpr uint8_t kClient = 2;
constexpr uint8_t kTime = 4;
constexpr uint8_t kManyParts = 8;
constexpr uint8_t kFrameFlags = 15;
// Flags of a part.
constexpr uint8_t kPartition = 1;  // not the previous part's + 1
constexpr uint8_t kRequestId = 2;  // not the previous part's + 1
constexpr uint8_t kOtherClient = 4;
constexpr uint8_t kSeq = 8;
constexpr uint8_t kAfterSeq = 16;  // not seq
constexpr uint8_t kNotifiedAck = 32;
constexpr uint8_t kKnowsInc = 64;
constexpr uint8_t kTables = 128;
// Flags of a table, with those of frame_bytes.h.
constexpr uint8_t kPush = 4;
constexpr uint8_t kCheck = 8;
constexpr uint8_t kFetch = 16;
constexpr uint8_t kDropped = 32;
constexpr uint8_t kSubscribe = 64;

}  // namespace het::frame::request
