// Whole lines of a text file, some megabytes at a time; gzip where its name ends in ".gz".
//
//   at = {}                          {offset 0, line 0}
//   ReadLines(path, at, &text, &at)  text: lines 0 to 4,711; at: {1,048,201, 4,712}
//   ...                              text: empty; the file has ended
//
// A reader is known by where it stands, so a pass that is left needs no end, and one that is taken up again
// goes on. For files of gzip, which can only be read in order, streams that stand where somebody left them
// are kept: the newest kKept of the process.
//
// Concurrency: thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

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

// *text: whole lines from *at on, at least one, with their ends (the last one of the file may lack it); "" at
// the end. *at: behind them. InvalidArgument, with the path and the line: the file cannot be read, or a line
// is too long.
Status ReadLines(const std::string& path, const LineLimits& limits, LinePosition* at, std::string* text);

}  // namespace het
