// Parses Criteo's format, label \t 13 integers \t 26 hexadecimal categories, into batches of numbers.
//
//   label       0 or 1
//   an integer  log(x + 1); a negative or missing one counts as 0
//   a category  a 64-bit hash of field and value, a bijection within a field; a missing category is a
//               value of its own
//
// Example: "1\t3\t-1\t...\t68fd1e64\t..." becomes label 1, numeric [1.386, 0, ...] and
// ids [mix(0x68fd1e64 * kGamma + salts[0]), ...].
//
// Concurrency: pure functions, so texts can be parsed concurrently.
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

// Selects the lines of a file that become rows.
struct CriteoSelection {
  uint64_t part_salt = 0;                    // salt of the hash that assigns lines to ten parts
  uint64_t first_tenth = 0, end_tenth = 10;  // selects parts [first, end) of the ten
  uint64_t shard = 0, shards = 1;            // selects lines with number % shards == shard

  bool Selects(uint64_t line) const;
};

// The hashing of categories.
struct CriteoHash {
  std::array<uint64_t, kCriteoCategories> salts = {};  // one for each field
  uint64_t buckets = 0;                                // ids are in [0, buckets); 0: 64-bit ids
};

// Rows in batches of `batch`: row r is row r % batch of batch r / batch. A column of ids is contiguous.
struct CriteoBatches {
  size_t batch;
  float* labels;   // [batches][batch]
  float* numeric;  // [batches][batch][kCriteoIntegers]
  int64_t* ids;    // [batches][kCriteoCategories][batch]
};

// Returns whether a line, without its end, can be parsed.
bool IsCriteoLine(std::string_view line);

// The lines of a text, in the order of their rows.
class CriteoLines {
 public:
  explicit CriteoLines(std::string_view text);
  size_t size() const { return lines_.size(); }
  // Reorders the lines; the order depends on the seed.
  void Shuffle(uint64_t seed);

  // Writes size() rows. `first`: the index in its file of the first line, from 0; the other lines are the
  // next selected ones. InvalidArgument, for the file's first bad line: "line N: reason", from 1.
  Status Parse(const CriteoHash& hash, const CriteoSelection& selection, uint64_t first,
               const CriteoBatches& batches) const;

 private:
  Status FirstBad(const CriteoSelection& selection, uint64_t first) const;

  std::string_view text_;
  std::vector<std::string_view> lines_;  // without their ends
};

}  // namespace het
