// Reads lines of a text file in pieces; decompresses it if its name ends in ".gz".
//
//   at = {}                                   {offset 0, line 0}
//   ReadLines(path, {}, want, &at, &text)     text: 4,096 wanted lines; at: {1,048,201, 4,712}
//   ...                                       text: empty at the end of the file
//
// A position is the reader's whole state, so a pass may be abandoned, or resumed later. The process keeps the
// newest kKept streams by their positions, with bytes read but not returned. At another position a file is
// opened and searched, which takes long only in a gzip file.
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
  int64_t offset = 0;  // in the decompressed text
  int64_t line = 0;    // index of the line that begins there, from 0
};

struct LineLimits {
  size_t chunk = size_t{1} << 20;     // bytes to read at a time
  size_t longest = size_t{16} << 20;  // limit on a line's bytes
};

// Selects lines, and how many to return at once.
struct LinesWanted {
  size_t multiple = 1;  // return a multiple of this many lines, except at the end of the file
  size_t most = 4096;   // return at most this many; a multiple of `multiple`
  // Whether to return a line, given its index from 0 and its text without the end. Called in order; called
  // again for lines that are not returned at once.
  std::function<bool(uint64_t number, std::string_view line)> wanted = [](uint64_t, std::string_view) {
    return true;
  };
};

// *text: wanted lines from *at, with their ends (a file's last line may lack it); "" at the end. *at: the
// position behind them. InvalidArgument, with path and line: the file cannot be read, or a line is too long.
Status ReadLines(const std::string& path, const LineLimits& limits, const LinesWanted& want, LinePosition* at,
                 std::string* text);

}  // namespace het
