// A library with the interface of ext/gpu/cc/abi.h, loaded by path.
#pragma once

#include <memory>
#include <string>

#include "het_tf/ext/gpu/cc/abi.h"

namespace het::bench {

#define HET_DEVICE_FUNCTIONS(X) \
  X(Error)                      \
  X(AbiVersion)                 \
  X(Describe)                   \
  X(CreateContext)              \
  X(DestroyContext)             \
  X(Malloc)                     \
  X(Free)                       \
  X(CopyIn)                     \
  X(CopyOut)                    \
  X(Synchronize)                \
  X(TableBytes)                 \
  X(CreateTable)                \
  X(DestroyTable)               \
  X(State)                      \
  X(CreateCall)                 \
  X(DestroyCall)                \
  X(ResetCall)                  \
  X(Lookup)                     \
  X(Stage)                      \
  X(Install)                    \
  X(Gather)                     \
  X(Sum)                        \
  X(Tick)                       \
  X(Collect)                    \
  X(Take)                       \
  X(Forget)                     \
  X(ForgetKeys)                 \
  X(Inspect)                    \
  X(FailAllocation)

// library.Lookup(...) is HetDevLookup(...) of that library.
struct Library {
  // Returns null, with a sentence in *error, if it cannot be loaded, lacks a function, or has another
  // version.
  static std::unique_ptr<Library> Open(const std::string& path, std::string* error);

#define HET_DEVICE_MEMBER(name) decltype(&HetDev##name) name = nullptr;
  HET_DEVICE_FUNCTIONS(HET_DEVICE_MEMBER)
#undef HET_DEVICE_MEMBER

  HetDevInfo info = {};
};

}  // namespace het::bench
