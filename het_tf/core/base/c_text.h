// The text that goes with the code of a C function of libhet_tf.so.
#ifndef HET_TF_CORE_BASE_C_TEXT_H_
#define HET_TF_CORE_BASE_C_TEXT_H_

#define HET_EXPORT __attribute__((visibility("default")))

extern "C" {

// Message or text of this thread's last call. Valid until its next one.
HET_EXPORT const char* HetText();

}  // extern "C"

#endif  // HET_TF_CORE_BASE_C_TEXT_H_
