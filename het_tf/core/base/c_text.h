// The text that goes with the code of a C function of libhet_tf.so.
#pragma once

#define HET_EXPORT __attribute__((visibility("default")))

extern "C" {

// Message or text of this thread's last call. Valid until its next one.
HET_EXPORT const char* HetText();

}  // extern "C"
