// Forged heads of files: else nothing but their checksums would be tried.
#pragma once

#include <cstddef>
#include <cstring>

#include "het_tf/core/base/checksum.h"

namespace het::testing {

// Changes the head that some bytes begin with, and makes its checksum right.
template <typename Head, typename Bytes, typename Change>
void ChangeHead(Bytes* bytes, const Change& change) {
  Head head;
  if (bytes->size() < sizeof head) return;
  std::memcpy(&head, bytes->data(), sizeof head);
  change(&head);
  head.checksum = Checksum::Of(&head, offsetof(Head, checksum));
  std::memcpy(bytes->data(), &head, sizeof head);
}

}  // namespace het::testing
