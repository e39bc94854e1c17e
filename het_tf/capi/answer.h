// What the management functions share: their way from C into the core, and the answer back.
#ifndef HET_TF_CAPI_ANSWER_H_
#define HET_TF_CAPI_ANSWER_H_

#include <exception>
#include <memory>
#include <new>
#include <string>

#include "het_tf/core/engine/engine.h"

namespace het {

// What HetText() answers to this thread.
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

// *out = the result's value.
template <typename T, typename Out>
Status Give(Result<T> result, Out* out) {
  if (result.ok()) *out = static_cast<Out>(result.value());
  return result.status();
}

// body(engine) -> Status for the engine of that namespace.
template <typename Body>
int WithEngine(const char* name_space, const Body& body) {
  return Answer([&]() -> Status {
    auto engine = GetEngine(name_space);
    if (!engine.ok()) return engine.status();
    return body(*engine.value());
  });
}

}  // namespace het

#endif  // HET_TF_CAPI_ANSWER_H_
