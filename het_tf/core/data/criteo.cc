#include "het_tf/core/data/criteo.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace het {
namespace {

constexpr size_t kIntegers = 1 + kCriteoIntegers;  // with the label
constexpr size_t kFields = kIntegers + kCriteoCategories;
constexpr size_t kMostDigits = 18;
constexpr size_t kMostHexDigits = 15;
constexpr uint64_t kMissing = uint64_t{1} << 63;  // a missing category: beyond every value of 15 hex digits
constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;

// The finalizer of SplitMix64. Ids are saved with models: it stays.
uint64_t Mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

constexpr uint64_t EachByte(uint64_t byte) { return byte * 0x0101010101010101; }

// Eight hexadecimal digits, Criteo's own width, at once.
bool ParseEightHex(std::string_view text, uint64_t* value) {
  uint64_t x;
  std::memcpy(&x, text.data(), sizeof(x));
  constexpr uint64_t kHigh = EachByte(0x80);
  const uint64_t from_zero = x ^ EachByte(0x30);                         // a digit: 0 to 9
  const uint64_t letter = (x | EachByte(0x20)) ^ EachByte(0x60);         // a letter: 1 to 6
  const uint64_t no_digit = (from_zero & ~kHigh) + EachByte(0x80 - 10);  // bit 7: 10 or more
  const uint64_t from_one = (letter & ~kHigh) + EachByte(0x80 - 1);
  const uint64_t past_six = (letter & ~kHigh) + EachByte(0x80 - 7);
  if (((x | (no_digit & ~(from_one & ~past_six))) & kHigh) != 0) return false;
  uint64_t v = (x & EachByte(0x0f)) + 9 * (x >> 6 & EachByte(1));
  v = (v << 4 | v >> 8) & 0x00ff00ff00ff00ff;  // the first digit is in the lowest byte
  v = (v << 8 | v >> 16) & 0x0000ffff0000ffff;
  *value = (v << 16 | v >> 32) & 0xffffffff;
  return true;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool ParseHex(std::string_view text, uint64_t* value) {
  if (text.size() == 8) return ParseEightHex(text, value);
  *value = text.empty() ? kMissing : 0;
  if (text.size() > kMostHexDigits) return false;
  for (const char c : text) {
    const int digit = HexDigit(c);
    if (digit < 0) return false;
    *value = *value << 4 | static_cast<uint64_t>(digit);
  }
  return true;
}

// A missing one is 0.
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

// Counts are small: nearly all logarithms come from here.
class Logarithms {
 public:
  Logarithms() {
    for (size_t x = 0; x < kTable; ++x) table_[x] = std::log1p(static_cast<float>(x));
  }
  float Of(int64_t x) const {
    if (x <= 0) return 0;
    return static_cast<uint64_t>(x) < kTable ? table_[x] : std::log1p(static_cast<float>(x));
  }

 private:
  static constexpr size_t kTable = 4096;
  float table_[kTable];
};

// The fields of a line without its end. False: there are not kFields of them.
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

struct Parsed {
  std::array<int64_t, kIntegers> integers;
  std::array<uint64_t, kCriteoCategories> categories;
};

// The number of the first field that is wrong; kFields: none.
size_t ParseFields(const std::array<std::string_view, kFields>& fields, Parsed* parsed) {
  for (size_t f = 0; f < kIntegers; ++f) {
    if (!ParseInteger(fields[f], &parsed->integers[f])) return f;
  }
  if (fields[0].empty() || parsed->integers[0] < 0 || parsed->integers[0] > 1) return 0;
  for (size_t c = 0; c < kCriteoCategories; ++c) {
    if (!ParseHex(fields[kIntegers + c], &parsed->categories[c])) return kIntegers + c;
  }
  return kFields;
}

// Where the text is no UTF-8, or its size.
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
    // Overlong forms, surrogates, and what is beyond the last code point.
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) {
      return at;
    }
    at += length;
  }
  return text.size();
}

std::string Shown(std::string_view text) { return "'" + std::string(text.substr(0, 40)) + "'"; }

// What is wrong with a line; wrong: of ParseFields, where it has the right number of fields.
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

// Of a line as Criteo writes them: integers, and categories of eight digits or none. False: look closer.
bool ParseUsual(std::string_view line, Parsed* parsed) {
  const char* at = line.data();
  const char* const end = at + line.size();
  for (int64_t& value : parsed->integers) {
    const bool negative = at < end && *at == '-';
    if (negative) ++at;
    const char* const begin = at;
    uint64_t sum = 0;
    for (; at < end && static_cast<unsigned char>(*at - '0') < 10; ++at) {
      sum = sum * 10 + static_cast<uint64_t>(*at - '0');
    }
    if (at == end || *at != '\t' || at - begin > static_cast<int64_t>(kMostDigits)) return false;
    if (negative && at == begin) return false;
    value = negative ? -static_cast<int64_t>(sum) : static_cast<int64_t>(sum);
    ++at;
  }
  if (line[0] == '\t' || parsed->integers[0] < 0 || parsed->integers[0] > 1) return false;
  for (size_t c = 0; c < kCriteoCategories; ++c) {
    const bool last = c + 1 == kCriteoCategories;
    const bool missing = at == end || *at == '\t';
    if (missing) {
      parsed->categories[c] = kMissing;
    } else {
      if (end - at < 8 || !ParseEightHex({at, 8}, &parsed->categories[c])) return false;
      at += 8;
    }
    if (last || at == end || *at != '\t') return last && at == end;
    ++at;
  }
  return false;
}

// Rows that are written where there is room for all that there may be.
class RowWriter {
 public:
  RowWriter(const CriteoFormat& format, size_t most, CriteoRows* rows)
      : format_(format), rows_(*rows), n_(rows->labels.size()) {
    Resize(n_ + most);
  }
  ~RowWriter() { Resize(n_); }
  RowWriter(const RowWriter&) = delete;
  RowWriter& operator=(const RowWriter&) = delete;

  void Append(const Parsed& parsed) {
    static const Logarithms logarithms;
    rows_.labels[n_] = static_cast<float>(parsed.integers[0]);
    float* numeric = rows_.numeric.data() + n_ * kCriteoIntegers;
    for (size_t i = 0; i < kCriteoIntegers; ++i) numeric[i] = logarithms.Of(parsed.integers[1 + i]);
    int64_t* ids = rows_.ids.data() + n_ * kCriteoCategories;
    for (size_t c = 0; c < kCriteoCategories; ++c) {
      const uint64_t hash = Mix(parsed.categories[c] * kGamma + format_.salts[c]);
      ids[c] = static_cast<int64_t>(format_.buckets == 0 ? hash : hash % format_.buckets);
    }
    ++n_;
  }

 private:
  void Resize(size_t n) {
    rows_.labels.resize(n);
    rows_.numeric.resize(n * kCriteoIntegers);
    rows_.ids.resize(n * kCriteoCategories);
  }
  const CriteoFormat& format_;
  CriteoRows& rows_;
  size_t n_;
};

bool Wanted(const CriteoFormat& format, uint64_t line) {
  if (line % format.shards != format.shard) return false;
  if (format.first_tenth == 0 && format.end_tenth == 10) return true;
  const uint64_t tenth = Mix(line * kGamma + format.part_salt) % 10;
  return tenth >= format.first_tenth && tenth < format.end_tenth;
}

}  // namespace

Status ParseCriteo(const CriteoFormat& format, std::string_view text, uint64_t first_line, CriteoRows* rows) {
  const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  RowWriter writer(format, lines / format.shards + 1, rows);
  std::array<std::string_view, kFields> fields;
  Parsed parsed;
  for (uint64_t number = first_line; !text.empty(); ++number) {
    const size_t newline = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(std::min(newline + 1, text.size()));
    if (!Wanted(format, number)) continue;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (ParseUsual(line, &parsed)) {
      writer.Append(parsed);
      continue;
    }
    const bool split = Split(line, &fields);
    const size_t wrong = split ? ParseFields(fields, &parsed) : 0;
    if (split && wrong == kFields) {
      writer.Append(parsed);
    } else if (format.skip) {
      ++rows->skipped;
    } else {
      const std::string reason = Reason(line, split ? &fields : nullptr, wrong);
      return InvalidArgument("line " + std::to_string(number + 1) + ": " + reason);
    }
  }
  return Status();
}

}  // namespace het
