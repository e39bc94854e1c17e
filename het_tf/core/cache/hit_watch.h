#pragma once

#include <algorithm>
#include <cstddef>

namespace het {

// Tells when the share of hits falls far below the expected share, by more than chance explains. The
// cached rows are then no longer the used rows. In a steady stream it never falls so far.
//
// Uses are counted in windows of whole reads: a read's hits come before its misses, so a part of a
// read says nothing. A window is at least an eighth of the capacity. The expected share rises to that
// of a window at once, and falls slowly.
class HitWatch {
 public:
  explicit HitWatch(size_t capacity) { SetCapacity(capacity); }
  void SetCapacity(size_t capacity) { window_ = std::max<size_t>(256, capacity / 8); }
  // Counts one use. Returns whether it ends a window in which the share has fallen.
  bool Count(bool hit) {
    const bool fell = hit && missed_ && uses_ >= window_ && EndWindow();
    missed_ = !hit;
    ++uses_;
    hits_ += hit;
    return fell;
  }

 private:
  bool EndWindow();

  size_t window_ = 0;
  size_t uses_ = 0;
  size_t hits_ = 0;
  bool missed_ = false;  // the last use
  double share_ = 0;
};

}  // namespace het
