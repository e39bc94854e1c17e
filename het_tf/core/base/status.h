// Errors as values. The core throws nothing but std::bad_alloc, and catches that at its own edges.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace het {

// The same names and numbers as TensorFlow's and gRPC's canonical codes, so that the plugin can pass them on.
enum class Code {
  kOk = 0,
  kCancelled = 1,
  kFile = 2,  // TensorFlow's UNKNOWN: the system refused a file; the message has the reason
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string message) {
  return Status(Code::kInvalidArgument, std::move(message));
}
inline Status FailedPrecondition(std::string message) {
  return Status(Code::kFailedPrecondition, std::move(message));
}

// A value, or the error that explains its absence.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by design

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace het

#define HET_RETURN_IF_ERROR(expr)                                                  \
  do {                                                                             \
    if (::het::Status het_status_ = (expr); !het_status_.ok()) return het_status_; \
  } while (false)

// HET_ASSIGN_OR_RETURN(Schema schema, Schema::Create(spec)): declares or assigns a Result's value; returns
// its error from the function.
#define HET_ASSIGN_OR_RETURN(lhs, expr) HET_ASSIGN_OR_RETURN_(HET_CONCAT_(het_result_, __LINE__), lhs, expr)
#define HET_ASSIGN_OR_RETURN_(result, lhs, expr) \
  auto result = (expr);                          \
  if (!result.ok()) return result.status();      \
  lhs = std::move(result.value())
#define HET_CONCAT_(a, b) HET_CONCAT_INNER_(a, b)
#define HET_CONCAT_INNER_(a, b) a##b
