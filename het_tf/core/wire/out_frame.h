// A request frame for a partition's owner, with the facts that a carrier needs.
#pragma once

#include <vector>

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/wire/ids.h"

namespace het {

// EncodeFrame (request.h) makes one.
struct OutFrame {
  std::vector<PartRef> parts;  // at least one; the first one's partition addresses the frame
  bool push = false;           // a part has updates
  Bytes bytes;

  Span<const uint8_t> view() const { return {bytes.data(), bytes.size()}; }
};

}  // namespace het
