#pragma once

#include <cstdint>

#include "het_tf/core/base/alloc.h"

namespace het {

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
  // Any number is legal here.
  void Prefetch(uint32_t line) const {
    if (line < links_.size()) __builtin_prefetch(&links_[line], 1);
  }
  uint32_t back(size_t list) const { return lists_[list].back; }
  size_t size(size_t list) const { return lists_[list].size; }
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
    uint32_t size = 0;
  };
  Vector<Link> links_;
  Vector<List> lists_;
};

}  // namespace het
