// A recorded stream of ids, mapped from a file that run.py writes.
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
#include "het_tf/core/base/mapped_file.h"
#include "het_tf/core/base/status.h"

namespace het::traffic {

class Stream {
 public:
  // InvalidArgument names what is wrong with the file.
  static Result<std::unique_ptr<Stream>> Open(const std::string& path);

  size_t samples() const { return samples_; }
  size_t fields() const { return fields_; }
  size_t distinct() const { return keys_.size(); }
  Key key(uint32_t id) const { return keys_[id]; }
  const uint32_t* sample(size_t i) const { return ids_.data() + i * fields_; }

 private:
  explicit Stream(MappedFile file) : file_(std::move(file)) {}
  Status Read();

  MappedFile file_;
  size_t samples_ = 0;
  size_t fields_ = 0;
  Span<const Key> keys_;
  Span<const uint32_t> ids_;
};

}  // namespace het::traffic
