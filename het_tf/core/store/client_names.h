// A partition's rings of the keys that its clients have named (wire/named_keys.h), by client and table.
//
// Soft state: never saved or replicated, and it may be dropped at any moment. A client whose ring is gone is
// refused once (kEpoch), and begins anew. Not thread-safe; the partition's owner locks.
#pragma once

#include <map>
#include <utility>

#include "het_tf/core/wire/named_keys.h"

namespace het {

class ClientNames {
 public:
  // Limit on all rings together; beyond it the client that was silent for longest loses its own.
  static constexpr size_t kMostPlaces = size_t{1} << 20;
  // Forgets a client that was silent for this many seconds.
  static constexpr uint32_t kSilentSeconds = 600;

  // Null: there is none. Valid until the next call of Begin or Forget.
  NamedKeys* Find(const ClientId& client, uint64_t table);
  // Begins a ring in place of an earlier one. Returns null without memory or place for it.
  NamedKeys* Begin(const ClientId& client, uint64_t table, uint32_t size) noexcept;
  // `now`: seconds. Call now and then: a client without a Find since the call before is silent.
  void ForgetSilent(uint32_t now);
  void Clear() noexcept;
  size_t bytes() const;

 private:
  struct Of {
    std::map<uint64_t, NamedKeys> rings;  // by table
    uint64_t used = 0;                    // number of the newest Find or Begin
    uint64_t seen = 0;                    // `used` at the last ForgetSilent that found it changed
    uint32_t heard = 0;                   // the time of that
  };
  using Clients = std::map<ClientId, Of>;

  Clients::iterator Forget(Clients::iterator client);

  Clients clients_;
  size_t places_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace het
