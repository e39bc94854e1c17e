// Lines of Criteo's format, from a file that anybody may have written.
#include <algorithm>

#include "het_tf/inputs/criteo/criteo.h"
#include "tests/cpp/fuzz/target.h"

namespace het::fuzz {
namespace {

// The status of the lines' parser; their rows are written where there is room for them alone.
Status Parse(std::string_view text, bool shuffle) {
  CriteoLines lines(text);
  if (shuffle) lines.Shuffle(text.size());
  std::vector<float> labels(lines.size()), numeric(lines.size() * kCriteoIntegers);
  std::vector<int64_t> ids(lines.size() * kCriteoCategories);
  return lines.Parse({}, {}, 0,
                     {std::max<size_t>(lines.size(), 1), labels.data(), numeric.data(), ids.data()});
}

void Run(const uint8_t *data, size_t size) {
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  bool good = true;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t newline = std::min(rest.find('\n'), rest.size());
    good = IsCriteoLine(rest.substr(0, newline)) && good;
    rest.remove_prefix(std::min(newline + 1, rest.size()));
  }
  const Status status = Parse(text, false);
  if (status.ok() != good) Fail("lines that are skipped are not those that are errors");
  if (Parse(text, true).message() != status.message()) Fail("another order names another line");
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
