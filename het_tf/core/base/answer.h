// The results of libhet_tf.so's C functions: a het::Code, and a text that HetText() returns.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "het_tf/core/base/c_text.h"
#include "het_tf/core/base/status.h"

namespace het {

// The text that HetText() returns to this thread.
std::string& Text();

// Runs body() -> Status and converts its result, or exception, into a code and a text.
template <typename Body>
int Answer(const Body& body) {
  Status status;
  try {
    Text().clear();
    status = body();
    if (!status.ok()) Text() = status.message();
  } catch (const std::bad_alloc&) {
    status = Status(Code::kResourceExhausted, "");
    Text() = "out of memory";  // short enough to need no allocation
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

}  // namespace het
