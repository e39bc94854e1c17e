// Lines of a text file, as many as are wanted at a time; gzip where its name ends in ".gz".
//
//   at = {}                                   {offset 0, line 0}
//   ReadLines(path, {}, want, &at, &text)     text: 4,096 wanted lines; at: {1,048,201, 4,712}
//   ...                                       text: empty; the file has ended
//
// A reader is known by where it stands, so a pass that is left needs no end, and one that is taken up again
// goes on. Streams that stand where somebody left them are kept, with what was read of them and not handed
// out: the newest kKept of the process. Another is opened and searched for its place, which takes long in a
// file of gzip alone.
//
// Concurrency: thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "het_tf/core/base/status.h"

namespace het {

struct LinePosition {
  int64_t offset = 0;  // in the text, unpacked
  int64_t line = 0;    // number of the line that begins there, from 0
};

struct LineLimits {
  size_t chunk = size_t{1} << 20;     // bytes that are read at a time
  size_t longest = size_t{16} << 20;  // a line of more is an error
};

// Which lines are handed out, and how many at once.
struct LinesWanted {
  size_t multiple = 1;  // a number of lines that this divides, but for the last ones of the file
  size_t most = 4096;   // and no more than these; a multiple of it
  // Whether a line is wanted, by its number from 0 and its text without the end. Called in order, more than
  // once for lines that are not handed out at once.
  std::function<bool(uint64_t number, std::string_view line)> wanted = [](uint64_t, std::string_view) {
    return true;
  };
};

// *text: wanted lines from *at on, with their ends (the last one of the file may lack it); "" at the end.
// *at: behind them. InvalidArgument, with the path and the line: the file cannot be read, or a line is too
// long.
Status ReadLines(const std::string& path, const LineLimits& limits, const LinesWanted& want, LinePosition* at,
                 std::string* text);

}  // namespace het
