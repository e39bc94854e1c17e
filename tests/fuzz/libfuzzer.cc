// libFuzzer's entry to the one target of its program.
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  het::fuzz::Targets().front().run(data, size);
  return 0;
}
