#include "het_tf/inputs/criteo/criteo.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace het {
namespace {

constexpr size_t kIntegers = 1 + kCriteoIntegers;  // including the label
constexpr size_t kFields = kIntegers + kCriteoCategories;
constexpr size_t kMostDigits = 18;
constexpr size_t kMostHexDigits = 15;
constexpr uint64_t kMissing = uint64_t{1} << 63;  // a missing category: above all values of 15 hex digits
constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;

// The finalizer of SplitMix64. It must never change: ids are saved with models.
uint64_t Mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

constexpr uint64_t EachByte(uint64_t byte) { return byte * 0x0101010101010101; }

// Converts eight hexadecimal digits, Criteo's usual width, from texts[i] (in memory order) to values[i].
// Returns false if a byte is not a digit. Compilers vectorise this loop.
bool ParseEightHex(const uint64_t* texts, size_t n, uint64_t* values) {
  constexpr uint64_t kHigh = EachByte(0x80);
  uint64_t bad = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t x = texts[i];
    const uint64_t from_zero = x ^ EachByte(0x30);                         // a digit: 0 to 9
    const uint64_t letter = (x | EachByte(0x20)) ^ EachByte(0x60);         // a letter: 1 to 6
    const uint64_t no_digit = (from_zero & ~kHigh) + EachByte(0x80 - 10);  // bit 7: 10 or more
    const uint64_t from_one = (letter & ~kHigh) + EachByte(0x80 - 1);
    const uint64_t past_six = (letter & ~kHigh) + EachByte(0x80 - 7);
    bad |= x | (no_digit & ~(from_one & ~past_six));
    const uint64_t is_letter = x >> 6 & EachByte(1);
    uint64_t v = (x & EachByte(0x0f)) + (is_letter << 3) + is_letter;
    v = (v << 4 | v >> 8) & 0x00ff00ff00ff00ff;  // the lowest byte has the first digit
    v = (v << 8 | v >> 16) & 0x0000ffff0000ffff;
    values[i] = (v << 16 | v >> 32) & 0xffffffff;
  }
  return (bad & kHigh) == 0;
}

uint64_t Word(const char* text) {
  uint64_t word;
  std::memcpy(&word, text, sizeof(word));
  return word;
}

// Parses an integer of up to seven digits, perhaps with a minus, before a tab; reads eight bytes. Returns the
// length.
constexpr size_t kNoShortInteger = 8;
size_t ParseShortInteger(const char* text, int64_t* value) {
  if (*text == '-') {  // rare
    size_t length = 1;
    for (; length < 8 && text[length] >= '0' && text[length] <= '9'; ++length) {
      *value = *value * 10 - (text[length] - '0');
    }
    return length > 1 && length < 8 && text[length] == '\t' ? length : kNoShortInteger;
  }
  uint64_t x = Word(text);
  const uint64_t tabs = x ^ EachByte('\t');
  const uint64_t found = (tabs - EachByte(1)) & ~tabs & EachByte(0x80);  // only the lowest set bit is exact
  if (found == 0) return kNoShortInteger;
  const auto length = static_cast<size_t>(__builtin_ctzll(found)) / 8;
  if (length == 0) return 0;
  // Puts zeros in front of the digits: eight in all, the first in the lowest byte.
  x = (x << (64 - 8 * length)) | (EachByte('0') >> 8 * length);
  x ^= EachByte('0');
  if (((x | (x + EachByte(0x80 - 10))) & EachByte(0x80)) != 0) return kNoShortInteger;
  x = (x * 10 + (x >> 8)) & 0x00ff00ff00ff00ff;
  x = (x * 100 + (x >> 16)) & 0x0000ffff0000ffff;
  *value = static_cast<int64_t>((x * 10000 + (x >> 32)) & 0xffffffff);
  return length;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool ParseHex(std::string_view text, uint64_t* value) {
  if (text.size() == 8) {
    const uint64_t word = Word(text.data());  // NOLINT: it reads eight bytes, and there are eight
    return ParseEightHex(&word, 1, value);
  }
  *value = text.empty() ? kMissing : 0;
  if (text.size() > kMostHexDigits) return false;
  for (const char c : text) {
    const int digit = HexDigit(c);
    if (digit < 0) return false;
    *value = *value << 4 | static_cast<uint64_t>(digit);
  }
  return true;
}

// A missing integer is 0.
bool ParseInteger(std::string_view text, int64_t* value) {
  *value = 0;
  if (text.empty()) return true;
  const bool negative = text[0] == '-';
  if (negative) text.remove_prefix(1);
  if (text.empty() || text.size() > kMostDigits) return false;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    *value = *value * 10 + (c - '0');
  }
  if (negative) *value = -*value;
  return true;
}

// A table of logarithms: counts are small, so it has nearly all.
class Logarithms {
 public:
  static const Logarithms& Table() {
    static const Logarithms logarithms;
    return logarithms;
  }
  float Of(int64_t x) const {
    if (x <= 0) return 0;
    return static_cast<uint64_t>(x) < kTable ? table_[x] : std::log1p(static_cast<float>(x));
  }

 private:
  Logarithms() {
    for (size_t x = 0; x < kTable; ++x) table_[x] = std::log1p(static_cast<float>(x));
  }
  static constexpr size_t kTable = size_t{1} << 14;
  float table_[kTable];
};

// Splits a line without its end into fields. Returns false if there are not kFields.
bool Split(std::string_view line, std::array<std::string_view, kFields>* fields) {
  const char* begin = line.data();
  const char* const end = begin + line.size();
  for (size_t f = 0; f + 1 < kFields; ++f) {
    const char* tab = begin;
    while (tab < end && *tab != '\t') ++tab;
    if (tab == end) return false;
    (*fields)[f] = {begin, static_cast<size_t>(tab - begin)};
    begin = tab + 1;
  }
  (*fields)[kFields - 1] = {begin, static_cast<size_t>(end - begin)};
  return std::memchr(begin, '\t', static_cast<size_t>(end - begin)) == nullptr;
}

// The destinations of one row.
struct Row {
  float* label;
  float* numeric;
  int64_t* ids;  // of the first field; the next field's is `stride` further
  size_t stride;
};

class RowParser {
 public:
  explicit RowParser(const CriteoHash& hash) : hash_(hash), logarithms_(Logarithms::Table()) {}
  // Parses a line in the usual form: integers, and categories of eight digits or none. False for others.
  bool Usual(std::string_view line, const Row& row) const;
  // Parses any line that Split accepted. Returns the index of the first malformed field; kFields: none.
  size_t Fields(const std::array<std::string_view, kFields>& fields, const Row& row) const;

 private:
  void SetInteger(size_t i, int64_t value, const Row& row) const { row.numeric[i] = logarithms_.Of(value); }
  void SetCategory(size_t c, uint64_t value, const Row& row) const {
    const uint64_t hash = Mix(value * kGamma + hash_.salts[c]);
    row.ids[c * row.stride] = static_cast<int64_t>(hash_.buckets == 0 ? hash : hash % hash_.buckets);
  }
  const CriteoHash& hash_;
  const Logarithms& logarithms_;
};

size_t RowParser::Fields(const std::array<std::string_view, kFields>& fields, const Row& row) const {
  int64_t integer = 0;
  if (fields[0].empty() || !ParseInteger(fields[0], &integer) || integer < 0 || integer > 1) return 0;
  *row.label = static_cast<float>(integer);
  for (size_t i = 0; i < kCriteoIntegers; ++i) {
    if (!ParseInteger(fields[1 + i], &integer)) return 1 + i;
    SetInteger(i, integer, row);
  }
  for (size_t c = 0; c < kCriteoCategories; ++c) {
    uint64_t category = 0;
    if (!ParseHex(fields[kIntegers + c], &category)) return kIntegers + c;
    SetCategory(c, category, row);
  }
  return kFields;
}

bool RowParser::Usual(std::string_view line, const Row& row) const {
  const char* at = line.data();
  const char* const end = at + line.size();
  if (line.size() < 2 || (*at != '0' && *at != '1') || at[1] != '\t') return false;
  *row.label = *at == '1' ? 1 : 0;
  at += 2;
  for (size_t i = 0; i < kCriteoIntegers; ++i) {
    if (end - at < 8) return false;
    int64_t value = 0;
    const size_t length = ParseShortInteger(at, &value);
    if (length == kNoShortInteger) return false;
    SetInteger(i, value, row);
    at += length + 1;
  }
  uint64_t categories[kCriteoCategories];
  uint32_t missing = 0;  // one bit for each category
  for (size_t c = 0; c < kCriteoCategories; ++c, ++at) {
    if (at < end && *at != '\t') {
      if (end - at < 8) return false;
      categories[c] = Word(at);
      at += 8;
    } else {
      categories[c] = EachByte('0');
      missing |= uint32_t{1} << c;
    }
    if (c + 1 < kCriteoCategories && (at == end || *at != '\t')) return false;
  }
  if (at != end + 1 || !ParseEightHex(categories, kCriteoCategories, categories)) return false;
  for (; missing != 0; missing &= missing - 1) categories[__builtin_ctz(missing)] = kMissing;
  for (size_t c = 0; c < kCriteoCategories; ++c) SetCategory(c, categories[c], row);
  return true;
}

// Returns the position of the first byte that is not UTF-8, or the text's size.
size_t FirstNotUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char lead = byte(at);
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xc2 ? 0
                          : lead < 0xe0 ? 2
                          : lead < 0xf0 ? 3
                          : lead < 0xf5 ? 4
                                        : 0;
    if (length == 0 || at + length > text.size()) return at;
    for (size_t i = 1; i < length; ++i) {
      if ((byte(at + i) & 0xc0) != 0x80) return at;
    }
    const unsigned char second = length > 1 ? byte(at + 1) : 0x80;
    // Overlong forms, surrogates, and values beyond the last code point.
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) {
      return at;
    }
    at += length;
  }
  return text.size();
}

std::string Shown(std::string_view text) { return "'" + std::string(text.substr(0, 40)) + "'"; }

// Explains a bad line. `wrong`: the result of Fields, if the number of fields is right.
std::string Reason(std::string_view line, const std::array<std::string_view, kFields>* fields, size_t wrong) {
  if (const size_t at = FirstNotUtf8(line); at < line.size()) {
    constexpr char kHex[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(line[at]);
    return std::string("is not UTF-8 (byte 0x") + kHex[byte >> 4] + kHex[byte & 15] + " at position " +
           std::to_string(at) + ")";
  }
  if (fields == nullptr) {
    const std::string count = std::to_string(1 + std::count(line.begin(), line.end(), '\t'));
    return (line.empty() ? "is empty" : "has " + count + " fields, not " + std::to_string(kFields)) +
           " (label, 13 integers, 26 categories, separated by tabs)";
  }
  const std::string text = "has " + Shown((*fields)[wrong]) + " in ";
  if (wrong == 0) {
    return "has label " + Shown((*fields)[0]) + ", not 0 or 1 (test files without labels cannot be used)";
  }
  if (wrong < kIntegers) {
    return text + "I" + std::to_string(wrong) + ", not an integer of up to " + std::to_string(kMostDigits) +
           " digits";
  }
  return text + "C" + std::to_string(wrong - kCriteoIntegers) + ", not a hexadecimal number of up to " +
         std::to_string(kMostHexDigits) + " digits";
}

}  // namespace

bool CriteoSelection::Selects(uint64_t line) const {
  if (line % shards != shard) return false;
  if (first_tenth == 0 && end_tenth == 10) return true;
  const uint64_t tenth = Mix(line * kGamma + part_salt) % 10;
  return tenth >= first_tenth && tenth < end_tenth;
}

namespace {

// Parses a line and discards the row. Returns why it is malformed, or "".
std::string WhatIsWrong(std::string_view line) {
  float label, numeric[kCriteoIntegers];
  int64_t ids[kCriteoCategories];
  const CriteoHash hash;
  const Row row = {&label, numeric, ids, 1};
  const RowParser parser(hash);
  if (parser.Usual(line, row)) return "";
  std::array<std::string_view, kFields> fields;
  const bool split = Split(line, &fields);
  const size_t wrong = split ? parser.Fields(fields, row) : 0;
  return split && wrong == kFields ? "" : Reason(line, split ? &fields : nullptr, wrong);
}

std::string_view WithoutEnd(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

}  // namespace

bool IsCriteoLine(std::string_view line) { return WhatIsWrong(WithoutEnd(line)).empty(); }

CriteoLines::CriteoLines(std::string_view text) : text_(text) {
  constexpr size_t kUsualBytes = 200;
  lines_.reserve(text.size() / kUsualBytes + 1);
  while (!text.empty()) {
    const size_t newline = std::min(text.find('\n'), text.size());
    lines_.push_back(WithoutEnd(text.substr(0, newline)));
    text.remove_prefix(std::min(newline + 1, text.size()));
  }
}

void CriteoLines::Shuffle(uint64_t seed) {
  for (uint64_t left = lines_.size(); left > 1; --left) {
    const uint64_t random = Mix(seed += kGamma) >> 32;  // a text has fewer lines than 2^32
    std::swap(lines_[left - 1], lines_[random * left >> 32]);
  }
}

Status CriteoLines::Parse(const CriteoHash& hash, const CriteoSelection& selection, uint64_t first,
                          const CriteoBatches& batches) const {
  const RowParser parser(hash);
  std::array<std::string_view, kFields> fields;
  for (size_t r = 0; r < lines_.size(); ++r) {
    const size_t batch = r / batches.batch, in_batch = r % batches.batch;
    const Row row = {batches.labels + r, batches.numeric + r * kCriteoIntegers,
                     batches.ids + batch * kCriteoCategories * batches.batch + in_batch, batches.batch};
    if (parser.Usual(lines_[r], row)) continue;
    if (!Split(lines_[r], &fields) || parser.Fields(fields, row) != kFields)
      return FirstBad(selection, first);
  }
  return Status();
}

Status CriteoLines::FirstBad(const CriteoSelection& selection, uint64_t first) const {
  uint64_t number = first;
  for (const std::string_view line : CriteoLines(text_).lines_) {
    while (!selection.Selects(number)) ++number;
    const std::string wrong = WhatIsWrong(line);
    if (!wrong.empty()) return InvalidArgument("line " + std::to_string(number + 1) + ": " + wrong);
    ++number;
  }
  return Status(Code::kInternal, "a line could not be parsed, and can be now");
}

}  // namespace het
