// Lines of Criteo's format, from a file that anybody may have written.
#include "het_tf/core/data/criteo.h"
#include "tests/cpp/fuzz/target.h"

namespace het::fuzz {
namespace {

CriteoRows Parse(std::string_view text, bool skip, Status *status) {
  CriteoFormat format;
  format.skip = skip;
  CriteoRows rows;
  *status = ParseCriteo(format, text, 0, &rows);
  if (rows.numeric.size() != rows.labels.size() * kCriteoIntegers ||
      rows.ids.size() != rows.labels.size() * kCriteoCategories) {
    Fail("rows of Criteo's format are not whole");
  }
  return rows;
}

void Run(const uint8_t *data, size_t size) {
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  Status status;
  const CriteoRows rows = Parse(text, true, &status);
  if (!status.ok()) Fail("a bad line is an error though it is to be skipped");
  (void)Parse(text, false, &status);
  if (status.ok() != (rows.skipped == 0)) Fail("lines that are skipped are not those that are errors");
}

std::vector<Bytes> Seeds() {
  std::string line = "1";
  for (size_t i = 0; i < kCriteoIntegers; ++i) line += "\t" + std::to_string(i * i) + (i == 3 ? "\t-" : "");
  for (size_t c = 0; c < kCriteoCategories; ++c)
    line += c % 5 == 0 ? "\t" : "\t68fd1e6" + std::to_string(c % 10);
  const std::string text = line + "\n" + line.substr(0, 60) + "\r\n\n" + line;
  return {Bytes(text.begin(), text.end()), Bytes(line.begin(), line.end())};
}

const bool registered = Register({"criteo", Run, Seeds});

}  // namespace
}  // namespace het::fuzz
