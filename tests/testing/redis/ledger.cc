#include "tests/testing/redis/ledger.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <new>
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

void Ledger::Raise(std::atomic<int64_t>* most, int64_t to) {
  int64_t now = most->load();
  while (now < to && !most->compare_exchange_weak(now, to)) {
  }
}

SharedLedger NewLedger() {
  void* memory = mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return SharedLedger(new (memory) Ledger());
}

}  // namespace het::testing
