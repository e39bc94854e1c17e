// Lines that running steps use, by the token of their lookup. The newest kTokens steps keep
// theirs: a lookup that is never differentiated lets them go in the end.
#ifndef HET_TF_CORE_CLIENT_TOKEN_PINS_H_
#define HET_TF_CORE_CLIENT_TOKEN_PINS_H_

#include <map>

#include "het_tf/core/client/partition_read.h"

namespace het {

class TokenPins {
 public:
  static constexpr size_t kTokens = 8;

  void Add(uint64_t token, Pins* pins) {
    pins_[token].Append(pins);
    while (pins_.size() > kTokens) Release(pins_.begin()->first);
  }
  // Unknown tokens are fine.
  void Release(uint64_t token) { pins_.erase(token); }
  // The table is dropped with its lines.
  void Forget(const TableCache* cache) {
    for (auto& [token, pins] : pins_) pins.Forget(cache);
  }

 private:
  std::map<uint64_t, Pins> pins_;
};

}  // namespace het

#endif  // HET_TF_CORE_CLIENT_TOKEN_PINS_H_
