#include "tests/testing/redis/ledger.h"

#include <cstdio>
#include <iterator>
#include <string>

namespace het::testing {
namespace {

template <size_t n>
void Copy(const std::string& text, char (&to)[n]) {
  std::snprintf(to, n, "%s", text.c_str());
}

}  // namespace

void Ledger::Error(const std::string& what) {
  // Count the text only when it is complete: a reader of the count may end this process at once.
  const uint32_t at = error_texts_begun.fetch_add(1);
  if (at < std::size(error_texts)) Copy(what, error_texts[at]);
  errors.fetch_add(1);
}

std::string Ledger::FirstError() const {
  for (uint32_t at = 0; errors.load() > 0 && at < std::size(error_texts); ++at) {
    if (error_texts[at][0] != 0) return error_texts[at];
  }
  return "";
}

void Ledger::Notice(uint32_t w, const std::string& text) {
  ++workers[w].notices;
  Copy(text, notice);
}

uint64_t Ledger::Sum(std::atomic<uint64_t> Worker::*counter) const {
  uint64_t sum = 0;
  for (const Worker& worker : workers) sum += (worker.*counter).load();
  return sum;
}

}  // namespace het::testing
