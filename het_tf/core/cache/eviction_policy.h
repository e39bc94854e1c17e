// Which line of a full cache goes first. A policy sees line numbers only; it is a function of the calls it
// got, so that it can be run on a recorded trace and gives the same victims there.
//
//   lru        the line that was not touched for the longest time
//   lfu        the line with the fewest touches; on a tie the one that reached that count first. Counts are
//              halved after every 12 * capacity touches, so that yesterday's favourites leave; and quartered
//              as often as the share of hits falls (HitWatch), so that they leave at once when all of the
//              working set is another one
//   light_lfu  as lfu, but counting stops at 8: touching a hot line costs nothing (HET's LFUOpt). Unlike
//              HET's, it forgets: hot lines fall back to 4 at every ageing
//
// Cost: Insert, Touch, Pass and Erase O(1). Victims O(victims + lines that may not go). Ageing O(lines),
// seldom.
// Not thread-safe; the cache that owns it locks.
#ifndef HET_TF_CORE_CACHE_EVICTION_POLICY_H_
#define HET_TF_CORE_CACHE_EVICTION_POLICY_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "het_tf/core/base/alloc.h"
#include "het_tf/core/base/status.h"

namespace het {

// InvalidArgument lists the names there are.
Status CheckPolicyName(const std::string& name);

// Lines in doubly linked lists, kept in arrays indexed by line.
class LineLists {
 public:
  static constexpr uint32_t kNone = 0xffffffffu;

  explicit LineLists(size_t lists) : lists_(lists) {}
  // Makes `line` a legal number. Throws std::bad_alloc.
  void Reserve(uint32_t line) {
    if (line >= links_.size()) links_.resize(line + line / 2 + 16);
  }
  void PushFront(size_t list, uint32_t line);
  void Remove(size_t list, uint32_t line);
  void Prefetch(uint32_t line) const { __builtin_prefetch(&links_[line], 1); }
  uint32_t back(size_t list) const { return lists_[list].back; }
  uint32_t before(uint32_t line) const { return links_[line].before; }
  // Puts all of `from`, in its order, behind the lines of `to`.
  void Append(size_t to, size_t from);

 private:
  struct Link {
    uint32_t before = kNone;  // towards the front
    uint32_t after = kNone;
  };
  struct List {
    uint32_t front = kNone;
    uint32_t back = kNone;
  };
  Vector<Link> links_;
  Vector<List> lists_;
};

// Tells when the share of hits falls: far below what it was, by more than chance explains. Then what is
// cached is not what is used any more. In a steady stream it never does.
//
// Uses are counted in windows of whole reads: a read's hits come before its misses, so a part of a read says
// nothing. A window is at least an eighth of the capacity, and what the share has been follows it, upwards at
// once and downwards slowly.
class HitWatch {
 public:
  explicit HitWatch(size_t capacity) : window_(std::max<size_t>(256, capacity / 8)) {}
  // One use; true if the window that ended before it has fallen.
  bool Count(bool hit) {
    const bool fell = hit && missed_ && uses_ >= window_ && EndWindow();
    missed_ = !hit;
    ++uses_;
    hits_ += hit;
    return fell;
  }

 private:
  bool EndWindow();

  const size_t window_;
  size_t uses_ = 0;
  size_t hits_ = 0;
  bool missed_ = false;  // the last use
  double share_ = 0;
};

class EvictionPolicy {
 public:
  static Result<std::unique_ptr<EvictionPolicy>> Create(const std::string& name, size_t capacity);
  virtual ~EvictionPolicy() = default;

  // Throws std::bad_alloc; then the line is not in.
  virtual void Insert(uint32_t line) = 0;
  virtual void Touch(uint32_t line) = 0;
  // The line will be touched soon.
  void Prefetch(uint32_t line) const { lists_.Prefetch(line); }
  virtual void Erase(uint32_t line) = 0;
  // A row was used that is not in and does not come in.
  virtual void Pass() {}

  // Appends up to `count` lines for which may_go(line), in the order in which they should go.
  template <typename MayGo>
  void Victims(size_t count, MayGo may_go, Vector<uint32_t>* victims) const {
    for (size_t list = 0; list < list_count() && count > 0; ++list) {
      for (uint32_t line = lists_.back(list); line != LineLists::kNone && count > 0;
           line = lists_.before(line)) {
        if (!may_go(line)) continue;
        victims->push_back(line);
        --count;
      }
    }
  }

 protected:
  explicit EvictionPolicy(size_t lists) : list_count_(lists), lists_(lists) {}
  size_t list_count() const { return list_count_; }

  size_t list_count_;
  LineLists lists_;  // list 0 goes first, and of a list its back
};

}  // namespace het

#endif  // HET_TF_CORE_CACHE_EVICTION_POLICY_H_
