// The state of a line's copy, and whether the line may leave.
//
// 1. The copy of a row is in one of five states. The next lookup of the row
//
//      checked      asks the server whether its clock is within the pull bound
//      subscribed   reads it: the server notifies the client of a move past the bound (store/subscribers.h)
//      followed     reads it: the stream tells who else updates the row (ext/streams/cc/window.h)
//      moved        fetches it
//      invalid      fetches it, and must not read its value before
//
//    from           checked      subscribed   followed     moved        invalid
//    Subscribe      subscribed   subscribed   subscribed   subscribed   -
//    Unsubscribe    checked      checked      followed     moved        invalid
//    Notify         checked      moved        followed     moved        invalid
//    Follow         followed     -            followed     moved        invalid
//    Unfollow       checked      subscribed   checked      moved        invalid
//    Outdate        moved        moved        moved        moved        invalid
//    Invalidate     invalid      invalid      invalid      invalid      invalid
//    Validate       -            -            -            -            checked
//
//    A followed row belongs to a table whose pull bound is 0, which has no subscriptions.
//
//    When a subscribed line leaves, the client must tell the server: by a push, or by left().
//
// 2. A transient line was not admitted, or had no room: it leaves as soon as it is not held.
// 3. A held line does not leave: a step uses it, or its lookup waits (lookup_numbers.h).
//
// All calls are O(1), except UnfollowAll and ForEachFreeTransient.
#pragma once

#include "het_tf/core/cache/lines.h"
#include "het_tf/core/cache/lookup_numbers.h"

namespace het {

class LineMarks {
 public:
  LineMarks(Lines* lines, const LookupNumbers* numbers) : lines_(*lines), numbers_(*numbers) {}

  // Call for an added line. Throws std::bad_alloc.
  void Begin(uint32_t line, bool transient);
  // Call when the line leaves.
  void End(uint32_t line);

  bool invalid(uint32_t line) const { return lines_.state(line).copy == Copy::kInvalid; }
  bool subscribed(uint32_t line) const { return lines_.state(line).copy == Copy::kSubscribed; }
  bool followed(uint32_t line) const { return lines_.state(line).copy == Copy::kFollowed; }
  bool moved(uint32_t line) const { return lines_.state(line).copy == Copy::kMoved; }
  // An answer has brought or checked the row, and the server has subscribed this client to it.
  void Subscribe(uint32_t line) { lines_.state(line).copy = Copy::kSubscribed; }
  // The server has dropped the subscription, or a push reports the eviction.
  void Unsubscribe(uint32_t line) {
    if (subscribed(line)) lines_.state(line).copy = Copy::kChecked;
  }
  // A notification names the row.
  void Notify(uint32_t line) {
    if (subscribed(line)) lines_.state(line).copy = Copy::kMoved;
  }
  // A lookup of the stream has read the row, and the stream tells when another worker updates it.
  void Follow(uint32_t line) {
    if (lines_.state(line).copy == Copy::kChecked) lines_.state(line).copy = Copy::kFollowed;
  }
  // The stream does not tell any more.
  void UnfollowAll() {
    lines_.ForEach([this](uint32_t line) {
      if (followed(line)) lines_.state(line).copy = Copy::kChecked;
    });
  }
  // Another worker has updated the row, according to the stream.
  void Outdate(uint32_t line) {
    if (!invalid(line)) lines_.state(line).copy = Copy::kMoved;
  }
  // The base is invalid: a new incarnation, or the row is being filled in. Its update stays.
  void Invalidate(uint32_t line) { lines_.state(line).copy = Copy::kInvalid; }
  // The row of an answer is filled in.
  void Validate(uint32_t line) { lines_.state(line).copy = Copy::kChecked; }
  // Keys of subscribed lines that have left since this was last emptied. If memory ran out some are missing:
  // the server then notifies of them in vain.
  Vector<Key>& left() { return left_; }

  bool transient(uint32_t line) const { return lines_.state(line).transient; }
  // Lines that count against the capacity: all except transient ones.
  size_t resident() const { return lines_.size() - transient_lines_; }
  // Calls fn(line), which must remove the line, for each transient line that is not held.
  template <typename Fn>
  void ForEachFreeTransient(Fn fn) {
    size_t kept = 0;
    for (uint32_t line : transient_) {
      if (!lines_.live(line) || !transient(line)) continue;
      if (held(line)) {
        transient_[kept++] = line;
      } else {
        fn(line);
      }
    }
    transient_.resize(kept);
  }

  bool held(uint32_t line) const { return numbers_.Holds(lines_.state(line).held_until); }
  // Holds the line until this number (LookupNumbers::Until), or longer if it is held longer already.
  void Hold(uint32_t line, uint32_t until) {
    LineState& state = lines_.state(line);
    if (numbers_.Left(state.held_until) < numbers_.Left(until)) state.held_until = until;
  }

 private:
  Lines& lines_;
  const LookupNumbers& numbers_;
  Vector<uint32_t> transient_;  // lines added as transient, some of which may have left
  size_t transient_lines_ = 0;  // number of transient lines
  Vector<Key> left_;
};

inline void LineMarks::Begin(uint32_t line, bool transient) {
  if (transient) transient_.push_back(line);
  transient_lines_ += transient;
  lines_.state(line).transient = transient;
  lines_.state(line).held_until = numbers_.passed();
}

inline void LineMarks::End(uint32_t line) {
  transient_lines_ -= transient(line);
  if (!subscribed(line)) return;
  try {
    left_.push_back(lines_.meta(line).key);
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace het
