#include "tests/testing/redis/served_rows.h"

#include <cstdio>
#include <cstdlib>

#include "het_tf/ext/serving/cc/follow/boot_clock.h"

namespace het::testing {

uint64_t RowHistory::Begin(float value) {
  const uint64_t number = size.load();
  if (number == kMostEvents) std::abort();
  events[number].value = value;
  size = number + 1;
  return number;
}

void RowHistory::Ack(uint64_t event) { events[event].acked = follow::BootNanoseconds(); }

uint64_t RowHistory::LastAcked() const {
  uint64_t number = size.load();
  while (number > 1 && events[number - 1].acked == 0) --number;
  return number - 1;
}

void ServedRows::Error(const std::string& what) {
  if (errors.fetch_add(1) == 0) std::snprintf(first_error, sizeof(first_error), "%s", what.c_str());
}

uint64_t ServedRows::Check(het::Key key, const float* value, size_t dim, uint64_t seen, uint64_t version) {
  ++checked;
  const std::string name = "key " + std::to_string(key) + ": ";
  for (size_t i = 1; i < dim; ++i) {
    if (value[i] != value[0]) Error(name + "a torn row");
  }
  const RowHistory& row = rows[key];
  const uint64_t least = versions[version].least[key];
  const uint64_t size = row.size;
  for (uint64_t i = size; i-- > 0;) {
    if (row.events[i].value == value[0]) {
      if (i < least) break;
      return i;
    }
    const uint64_t acked = row.events[i].acked;
    if (acked != 0 && acked <= seen) {
      const double late = static_cast<double>(follow::BootNanoseconds() - acked) * 1e-9;
      const double claim = static_cast<double>(follow::BootNanoseconds() - seen) * 1e-9;
      Error(name + "value " + std::to_string(value[0]) + " was replaced by " +
            std::to_string(row.events[i].value.load()) + " " + std::to_string(late) +
            " s ago, and the claimed age is " + std::to_string(claim) + " s");
      return i;
    }
  }
  Error(name + "value " + std::to_string(value[0]) + " is older than the cut of version " +
        std::to_string(version) + ", or was never written; its last event is " +
        std::to_string(row.events[size - 1].value.load()));
  return 0;
}

Shared<ServedRows> NewServedRows() {
  auto made = NewShared<ServedRows>();
  for (RowHistory& row : made->rows) row.Ack(row.Begin(0));  // no row yet
  made->versions[0].ready = true;
  return made;
}

}  // namespace het::testing
