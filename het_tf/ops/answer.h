// How the functions of the C ABI answer (management.h): with a code, and a text of the calling thread.
#ifndef HET_TF_OPS_ANSWER_H_
#define HET_TF_OPS_ANSWER_H_

#include <exception>
#include <new>
#include <string>

#include "het_tf/core/status.h"

namespace het {

inline std::string& Text() {
  static thread_local std::string text;
  return text;
}

// Runs body() -> Status and turns whatever comes out of it into a code and a text.
template <typename Body>
int Answer(const Body& body) {
  Status status;
  try {
    Text().clear();
    status = body();
    if (!status.ok()) Text() = status.message();
  } catch (const std::bad_alloc&) {
    status = Status(Code::kResourceExhausted, "");
    Text() = "out of memory";  // short enough to need none
  } catch (const std::exception& error) {
    status = Status(Code::kInternal, "");
    Text() = error.what();
  }
  return static_cast<int>(status.code());
}

}  // namespace het

#endif  // HET_TF_OPS_ANSWER_H_
