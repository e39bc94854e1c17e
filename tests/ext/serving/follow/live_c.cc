// A LiveWriter for tests of Python (tests/lib/follow_lib.py), by ctypes. Functions return 0, or -1
// after an error, whose text live_error() returns.
#include <sstream>
#include <string>
#include <vector>

#include "het_tf/ext/serving/cc/follow/boot_clock.h"
#include "het_tf/ext/serving/cc/follow/live_writer.h"

namespace {

using het::Status;
using het::follow::LiveWriter;

std::string error;  // NOLINT: of the one thread of a test

int Done(const Status& status) {
  error = status.message();
  return status.ok() ? 0 : -1;
}

}  // namespace

extern "C" {

#define EXPORT __attribute__((visibility("default")))

EXPORT const char* live_error() { return error.c_str(); }

// `files`: one a line. Null after an error.
EXPORT void* live_open(const char* directory, const char* files) {
  std::vector<std::string> list;
  std::istringstream lines(files);
  for (std::string line; std::getline(lines, line);) list.push_back(line);
  auto writer = LiveWriter::Open(directory, list);
  return Done(writer.status()) == 0 ? writer.value().release() : nullptr;
}
EXPORT void live_close(void* writer) { delete static_cast<LiveWriter*>(writer); }

EXPORT int live_put(void* writer, size_t table, const int64_t* keys, size_t count, const float* values) {
  return Done(static_cast<LiveWriter*>(writer)->Put(table, {keys, count}, values));
}
EXPORT int live_flip(void* writer, uint64_t number, const char* dense_path) {
  return Done(static_cast<LiveWriter*>(writer)->Flip({number, dense_path, std::nullopt}));
}
// The rows are those of the store `age` seconds ago.
EXPORT int live_seen(void* writer, double age) {
  auto* const live = static_cast<LiveWriter*>(writer);
  const Status status = live->SetPartitions(1);
  if (!status.ok()) return Done(status);
  const auto since = static_cast<uint64_t>(age * 1e9);
  return Done(live->SetPosition(0, "1:1", het::follow::BootNanoseconds() - since));
}

}  // extern "C"
