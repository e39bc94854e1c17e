// What this library uses of the C ABI of XLA's foreign functions (xla/ffi/api/c_api.h), version 0.1: that of
// JAX 0.5.0. Later versions have only added what is not declared here, and accept handlers of this one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace het::xla {

constexpr int kMajor = 0, kMinor = 1;

enum Type : int { kPred = 1, kS32 = 4, kS64 = 5, kU32 = 8, kF32 = 11, kToken = 17 };
enum AttributeKind : int { kScalar = 3, kString = 4 };
constexpr int kIsBuffer = 1;    // the only kind of arguments and results
constexpr int kIsMetadata = 1;  // the kind of the extension of a frame that asks for the version
constexpr int kStageOfExecution = 3;

struct Extension {
  size_t size;
  int kind;
  Extension* next;
};
struct Version {
  size_t size;
  Extension* extensions;
  int major, minor;
};
struct Metadata {
  size_t size;
  Version version;
  uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct Error;  // XLA's
struct ErrorArguments {
  size_t size;
  Extension* extensions;
  const char* message;
  int code;  // as het::Code
};
struct Api {
  size_t size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*make_error)(ErrorArguments*);
};

struct Buffer {
  size_t size;  // of this struct, as everywhere here
  Extension* extensions;
  int type;
  void* data;
  int64_t rank;
  int64_t* dims;
};
struct Buffers {
  size_t size;
  Extension* extensions;
  int64_t count;
  int* kinds;
  void** items;
};
struct Text {
  const char* begin;
  size_t length;
};
struct Scalar {
  int type;
  void* value;
};
struct Attributes {
  size_t size;
  Extension* extensions;
  int64_t count;
  int* kinds;
  Text** names;
  void** items;
};
struct Frame {
  size_t size;
  Extension* extensions;
  const Api* api;
  void* context;
  int stage;
  Buffers arguments, results;
  Attributes attributes;
};

}  // namespace het::xla
