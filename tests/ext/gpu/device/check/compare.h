// Compares two replies to one call. A difference is thrown as a Different, with a sentence.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/ext/gpu/device/check/side.h"

namespace het::device_check {

struct Different : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws Different(what) if `holds` is false.
void Expect(bool holds, const std::string& what);

// Whether the bits are equal, or both are NaN (with any payload, which depends on the machine).
bool SameFloat(float a, float b);
void ExpectSame(const std::vector<float>& tested, const std::vector<float>& reference,
                const std::string& what);

void ExpectSameCode(const Reply& tested, const Reply& reference, const std::string& what);
void ExpectSameWanted(const Reply& tested, const Reply& reference);
// Compares updates in their order.
void ExpectSameUpdates(const Reply& tested, const Reply& reference, const std::string& what);
void ExpectSameSums(const Reply& tested, const Reply& reference);
void ExpectSameState(const Reply& tested, const Reply& reference, const std::string& table);
void ExpectSameRow(const Reply& tested, const Reply& reference, const std::string& table, int64_t key);

}  // namespace het::device_check
