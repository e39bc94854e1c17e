#include "het_tf/core/wire/named_keys.h"

#include <algorithm>
#include <utility>

namespace het {

void NamedKeys::Append(Key key) {
  const auto forget = [this](Key known, uint32_t place) {
    if (place != kNoRow && PlaceOf(known) == place) index_.Erase(Hash(known), place);
  };
  if (appended_ >= size_) {
    const auto last = static_cast<uint32_t>((appended_ - size_) % kept_);
    forget(keys_[last], last);
  }
  forget(key, PlaceOf(key));
  index_.Reserve([this](uint32_t place) { return Hash(keys_[place]); });
  const auto place = static_cast<uint32_t>(appended_ % kept_);
  if (place == keys_.size()) keys_.emplace_back();
  keys_[place] = key;
  index_.Insert(Hash(key), place);
  ++appended_;
  state_ = Mix64(state_ ^ static_cast<uint64_t>(key));
}

uint32_t NamedKeys::Find(Key key) const {
  const uint32_t place = PlaceOf(key);
  return place == kNoRow ? kNone : place % size_;
}

const Key* NamedKeys::At(uint32_t name, uint64_t appended) const {
  if (name >= size_ || name >= appended || appended > appended_) return nullptr;
  const uint64_t number = appended - 1 - (appended - 1 - name) % size_;
  return appended_ - number <= kept_ ? &keys_[number % kept_] : nullptr;
}

void NameKeys(const NamedKeys& ring, Span<const Key> keys, Vector<uint32_t>* names) {
  names->resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) (*names)[i] = ring.Find(keys[i]) + 1;  // kNone: 0
}

bool CompleteKeys(const NamedKeys& ring, uint64_t appended, Span<const uint32_t> names, Vector<Key>* keys) {
  Vector<Key> all(names.size());
  const Key* in_full = keys->data();
  for (size_t i = 0; i < names.size(); ++i) {
    const Key* const key = names[i] == 0 ? in_full++ : ring.At(names[i] - 1, appended);
    if (key == nullptr || (i > 0 && *key <= all[i - 1])) return false;
    all[i] = *key;
  }
  // A push has keys of rows that left behind those.
  all.insert(all.end(), in_full, static_cast<const Key*>(keys->data() + keys->size()));
  keys->swap(all);
  return true;
}

}  // namespace het
