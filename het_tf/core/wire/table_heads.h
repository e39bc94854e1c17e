// The heads of a frame's tables (parts.h). A frame has each of them once, where a part first names the table;
// from then on its number stands for it.
//
// `Head`: RequestTable or ReplyTable. Write and Read follow the flags of the table's place in a part.
#pragma once

#include "het_tf/core/base/bytes.h"
#include "het_tf/core/base/status.h"
#include "het_tf/core/wire/frame_bytes.h"
#include "het_tf/core/wire/reply.h"
#include "het_tf/core/wire/request.h"

namespace het::frame {

// The bytes of a head. Reading returns false if they are none.
void WriteHead(const RequestTable& head, Writer* w);
void WriteHead(const ReplyTable& head, Writer* w);
bool ReadHead(Reader* r, RequestTable* head);
bool ReadHead(Reader* r, ReplyTable* head);

template <typename Head>
class TableHeads {
 public:
  void Clear() { Resize(0); }
  size_t size() const { return heads_.size(); }
  // Forgets the newest ones.
  void Resize(size_t size) { heads_.resize(size); }
  // Numbers only rise within a part.
  void StartPart() { next_ = 0; }

  // Returns the flags that say how the part's next table is named.
  uint8_t Find(const Head& head) {
    // Most parts name the same tables in the same order.
    const uint32_t next = next_;
    while (next_ < heads_.size() && !(heads_[next_] == head)) ++next_;
    if (next_ == heads_.size()) return kNew;
    return next_ == next ? 0 : kNumber;
  }
  void Write(uint8_t flags, const Head& head, Writer* w) {
    if ((flags & kNew) != 0) {
      heads_.push_back(head);
      WriteHead(head, w);
    } else if ((flags & kNumber) != 0) {
      w->Varint(next_);
    }
    ++next_;
  }

  Status Read(uint8_t flags, Reader* r, Head* head) {
    if ((flags & kNew) != 0) {
      next_ = static_cast<uint32_t>(heads_.size());
      heads_.emplace_back();
      if (!ReadHead(r, &heads_.back())) return Broken("a table");
    } else if ((flags & kNumber) != 0) {
      bool ok = true;
      const uint32_t given = Narrow(r->Varint(), &ok);
      if (!ok || given < next_) return Broken("the number of a table");
      next_ = given;
    }
    if (!r->ok() || next_ >= heads_.size()) return Broken("a table without a description");
    *head = heads_[next_++];
    return Status();
  }

 private:
  Vector<Head> heads_;
  uint32_t next_ = 0;  // the number of the part's next table, unless it is named otherwise
};

}  // namespace het::frame
