// Lines of Criteo's format: label \t 13 integers \t 26 hexadecimal categories, to rows of numbers.
//
//   label       0 or 1
//   an integer  log(x + 1); a negative or missing one counts as 0
//   a category  a 64-bit hash of field and value, a bijection within a field; a missing one is a value of its
//   own
//
// Example: "1\t3\t-1\t...\t68fd1e64\t..." becomes label 1, numeric [1.386, 0, ...] and
// ids [mix(0x68fd1e64 * kGamma + salts[0]), ...].
//
// Concurrency: functions of their arguments; chunks of a file are parsed side by side.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "het_tf/core/base/status.h"

namespace het {

constexpr size_t kCriteoIntegers = 13;
constexpr size_t kCriteoCategories = 26;

// Which lines are parsed, and what becomes of them.
struct CriteoFormat {
  std::array<uint64_t, kCriteoCategories> salts = {};  // of the fields' hashes
  uint64_t part_salt = 0;                              // of the hash that deals lines to ten parts
  uint64_t buckets = 0;                                // ids are in [0, buckets); 0: 64-bit ids
  uint64_t first_tenth = 0, end_tenth = 10;            // of the ten parts, those of [first, end)
  uint64_t shard = 0, shards = 1;                      // of the lines, those with number % shards == shard
  bool skip = false;                                   // bad lines are counted, not errors
};

struct CriteoRows {
  std::vector<float> labels;
  std::vector<float> numeric;  // [rows][kCriteoIntegers]
  std::vector<int64_t> ids;    // [rows][kCriteoCategories]
  uint64_t skipped = 0;
};

// Appends the rows of whole lines; the last one may lack its newline. first_line: number of the first, from
// 0. Lines of other parts and shards are not looked at. InvalidArgument, "line N: what is wrong", with lines
// counted from 1: the first bad line.
Status ParseCriteo(const CriteoFormat& format, std::string_view text, uint64_t first_line, CriteoRows* rows);

}  // namespace het
