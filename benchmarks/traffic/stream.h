// A recorded stream of ids, mapped from a file that benchmarks/traffic.py writes.
//
//   u64 magic | u64 samples | u64 fields | u64 distinct | i64 keys[distinct] | u32 ids[samples * fields]
//
// Ids are numbers of keys: id i stands for keys[i]. So whoever counts something for every key needs an array,
// and no map.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "het_tf/core/base/hash.h"
#include "het_tf/core/base/status.h"

namespace het::traffic {

class Stream {
 public:
  // InvalidArgument names what is wrong with the file.
  static Result<std::unique_ptr<Stream>> Open(const std::string& path);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  size_t samples() const { return samples_; }
  size_t fields() const { return fields_; }
  size_t distinct() const { return distinct_; }
  Key key(uint32_t id) const { return keys_[id]; }
  const uint32_t* sample(size_t i) const { return ids_ + i * fields_; }

 private:
  Stream() = default;

  void* mapped_ = nullptr;
  size_t size_ = 0;
  size_t samples_ = 0;
  size_t fields_ = 0;
  size_t distinct_ = 0;
  const Key* keys_ = nullptr;
  const uint32_t* ids_ = nullptr;
};

}  // namespace het::traffic
