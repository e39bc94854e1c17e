#include "het_tf/core/cache/line_lists.h"

namespace het {

void LineLists::PushFront(size_t list, uint32_t line) {
  List& l = lists_[list];
  links_[line] = Link{kNone, l.front};
  (l.front == kNone ? l.back : links_[l.front].before) = line;
  l.front = line;
  ++l.size;
}

void LineLists::Remove(size_t list, uint32_t line) {
  List& l = lists_[list];
  const Link link = links_[line];
  (link.before == kNone ? l.front : links_[link.before].after) = link.after;
  (link.after == kNone ? l.back : links_[link.after].before) = link.before;
  --l.size;
}

void LineLists::Append(size_t to, size_t from) {
  List& a = lists_[to];
  List& b = lists_[from];
  if (b.front == kNone) return;
  if (a.back == kNone) {
    a.front = b.front;
  } else {
    links_[a.back].after = b.front;
    links_[b.front].before = a.back;
  }
  a.back = b.back;
  a.size += b.size;
  b = List();
}

}  // namespace het
