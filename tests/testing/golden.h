// Golden bytes: golden/NAME.bin is a sample of a format whose bytes leave a process. Another build reads them
// later, or at the other end, and knows them by the version in them: bytes that change under the same version
// are read wrong there, and no test that writes and reads in one process can see it.
//
// When a format changes, its version must be raised. Then, and only then, HET_GOLDEN_WRITE=1 writes it anew.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace het::testing {

inline std::string GoldenPath(const std::string& name) { return HET_GOLDEN "/" + name + ".bin"; }

// Returns the golden bytes, which must be `encoded`. Their version, which `constant` sets, stands at
// `version_at`.
inline std::string Golden(const std::string& name, const std::string& encoded, size_t version_at,
                          const std::string& constant) {
  std::ifstream file(GoldenPath(name), std::ios::binary);
  std::string golden(std::istreambuf_iterator<char>(file), {});
  const bool raised = golden.size() <= version_at || golden[version_at] != encoded.at(version_at);
  if (raised && std::getenv("HET_GOLDEN_WRITE") != nullptr) {
    std::ofstream(GoldenPath(name), std::ios::binary) << (golden = encoded);
  }
  size_t at = 0;
  while (at < golden.size() && at < encoded.size() && golden[at] == encoded[at]) ++at;
  EXPECT_TRUE(golden == encoded) << "the format '" << name << "' has other bytes than " << GoldenPath(name)
                                 << ": they differ from offset " << at << " on"
                                 << (raised ? "" : ", and the version in them is the same")
                                 << ". Remedy: " << (raised ? "" : "raise " + constant + ", then ")
                                 << "HET_GOLDEN_WRITE=1 build/check/tests/files --gtest_filter='*Golden*'";
  return golden;
}

}  // namespace het::testing
