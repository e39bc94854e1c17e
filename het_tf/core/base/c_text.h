// The text that belongs to a C function's code (libhet_tf.so).
#pragma once

#define HET_EXPORT __attribute__((visibility("default")))

extern "C" {

// Returns the message or text of this thread's last call. Valid until its next call.
HET_EXPORT const char* HetText();

}  // extern "C"
