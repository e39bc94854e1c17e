// Whether a table with CacheConfig::checks "auto" is told what has moved or asks, row by row: whatever
// takes fewer bytes. It begins told, and counts, over kWindow lookups, what that costs and saves:
//
//   saved   key and clock of each row that was read without a check; clock and position of each that
//           was fetched because it had moved, by its key alone
//   spent   keys of rows that the server named and of rows that it was told have left, and numbers of
//           answers. The head of a question is none: rows are trusted there, which asking would check
//
// The rows themselves count for neither: asking would fetch them, too. After a window that spent more
// than it saved the table asks for kFirstPause lookups, and twice as long after each further such window
// in a row, so that trying again costs next to nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace het {

class CheckChoice {
 public:
  static constexpr uint32_t kWindow = 16;
  static constexpr uint32_t kFirstPause = 64;
  static constexpr uint32_t kLongestPause = 1u << 16;

  bool told() const { return pause_left_ == 0; }
  // A lookup begins; before anything of it is counted.
  void OnLookup() {
    if (pause_left_ > 0) {
      --pause_left_;
      return;
    }
    if (++lookups_ <= kWindow) return;
    if (spent_ > saved_) {
      pause_left_ = pause_;
      pause_ = std::min(2 * pause_, kLongestPause);
    } else {
      pause_ = kFirstPause;
    }
    lookups_ = 1;
    spent_ = saved_ = 0;
  }
  void Trusted() { saved_ += kCheckBytes; }
  void Refetched() { saved_ += kCheckBytes + kPositionBytes - kKeyBytes; }
  // A request asks what has moved, and names so many rows that have left.
  void Asked(size_t left) { spent_ += kNumberBytes + kKeyBytes * left; }
  void Named(size_t rows) { spent_ += kKeyBytes * rows; }

 private:
  // As they are on the wire where a partition has some thousand rows.
  static constexpr uint64_t kKeyBytes = 3;
  static constexpr uint64_t kCheckBytes = 5;
  static constexpr uint64_t kPositionBytes = 1;
  static constexpr uint64_t kNumberBytes = 2;

  uint64_t saved_ = 0;
  uint64_t spent_ = 0;
  uint32_t lookups_ = 0;  // of the window
  uint32_t pause_left_ = 0;
  uint32_t pause_ = kFirstPause;
};

}  // namespace het
