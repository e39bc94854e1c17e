// Calls that must succeed, and calls that must be refused: failures of a test show the call's message.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/core/base/status.h"

// Of the namespace of Status: tests of any namespace find them.
namespace het {

inline ::testing::AssertionResult Ok(const Status& status) {
  return status.ok() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << status.message();
}

template <typename T>
::testing::AssertionResult Ok(const Result<T>& result) {
  return Ok(result.status());
}

// The value; without one the test ends here. For the thread of the test alone.
template <typename T>
T ValueOf(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result.value());
}

// The status has this code, and its message has all of these words.
template <typename... Words>
::testing::AssertionResult Fails(const Status& status, Code code, const Words&... words) {
  if (status.code() != code) {
    return ::testing::AssertionFailure() << "code " << static_cast<int>(status.code()) << ", not "
                                         << static_cast<int>(code) << ": " << status.message();
  }
  for (const std::string& word : std::vector<std::string>{words...}) {
    if (status.message().find(word) == std::string::npos) {
      return ::testing::AssertionFailure() << "no '" << word << "' in: " << status.message();
    }
  }
  return ::testing::AssertionSuccess();
}

template <typename T, typename... Words>
::testing::AssertionResult Fails(const Result<T>& result, Code code, const Words&... words) {
  return Fails(result.status(), code, words...);
}

}  // namespace het
