#include "het_tf/core/base/checksum.h"

#include <cinttypes>
#include <cstdio>

namespace het {

std::string Checksum::Text(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

}  // namespace het
