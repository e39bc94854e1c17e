// Time and identity of the machine's boot. CLOCK_BOOTTIME goes on while the machine sleeps, and is the same
// in all processes.
#pragma once

#include <cstdint>
#include <string>

namespace het::follow {

uint64_t BootNanoseconds();
// Returns the kernel's random ID of this boot, of 36 characters; "" if there is none.
std::string BootId();

}  // namespace het::follow
