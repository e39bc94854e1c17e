#include "het_tf/core/base/answer.h"

namespace het {

std::string& Text() {
  static thread_local std::string text;
  return text;
}

}  // namespace het

const char* HetText() { return het::Text().c_str(); }
