// Optimizers and initializers for ctypes; tests/python/lib/optimizer_lib.py is the other side.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "het_tf/core/row/initializer.h"
#include "het_tf/core/row/optimizer.h"

#define HET_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// Cuts the message to the caller's buffer, which ends with a zero.
void Report(const het::Status& status, char* error, size_t error_size) {
  if (error_size == 0) return;
  const size_t n = std::min(status.message().size(), error_size - 1);
  std::memcpy(error, status.message().data(), n);
  error[n] = '\0';
}

const het::Optimizer* Of(const void* handle) { return static_cast<const het::Optimizer*>(handle); }

}  // namespace

// Null and a message in `error` where Optimizer::Create refuses.
HET_EXPORT void* het_optimizer_create(const char* name, const char* const* params, const double* values,
                                      size_t num_params, size_t dim, char* error, size_t error_size) {
  het::OptimizerSpec spec{name, {}};
  for (size_t i = 0; i < num_params; ++i) spec.params[params[i]] = values[i];
  auto made = het::Optimizer::Create(spec, dim);
  if (made.ok()) return made.value().release();
  Report(made.status(), error, error_size);
  return nullptr;
}

HET_EXPORT void het_optimizer_destroy(void* handle) { delete Of(handle); }

HET_EXPORT size_t het_optimizer_row_floats(const void* handle) { return Of(handle)->row_floats(); }
HET_EXPORT size_t het_optimizer_wire_begin(const void* handle) { return Of(handle)->wire_begin(); }
HET_EXPORT size_t het_optimizer_num_slots(const void* handle) { return Of(handle)->slots().size(); }
HET_EXPORT const char* het_optimizer_slot_name(const void* handle, size_t slot) {
  return Of(handle)->slots()[slot].name.c_str();
}
HET_EXPORT size_t het_optimizer_slot_floats(const void* handle, size_t slot) {
  return Of(handle)->slot_floats(slot);
}

HET_EXPORT void het_optimizer_init_slots(const void* handle, float* row) { Of(handle)->InitSlots(row); }
// `update` may be null.
HET_EXPORT void het_optimizer_apply(const void* handle, float learning_rate, const float* g, float* row,
                                    float* update) {
  Of(handle)->Apply(learning_rate, g, row, update);
}
HET_EXPORT void het_optimizer_merge(const void* handle, const float* update, uint32_t ticks, float* row) {
  Of(handle)->MergeInto(update, ticks, row);
}
HET_EXPORT void het_optimizer_compose(const void* handle, const float* later, uint32_t later_ticks,
                                      float* earlier) {
  Of(handle)->Compose(later, later_ticks, earlier);
}

HET_EXPORT uint64_t het_hash_name(const char* name) { return het::HashName(name); }

// Fills values[num_keys, dim]; 0, or -1 and a message where Initializer::Create refuses.
HET_EXPORT int het_initializer_fill(const char* name, double a, double b, uint64_t seed, uint64_t table,
                                    size_t dim, const int64_t* keys, size_t num_keys, float* values,
                                    char* error, size_t error_size) {
  auto made = het::Initializer::Create({name, a, b}, seed, table, dim);
  if (!made.ok()) {
    Report(made.status(), error, error_size);
    return -1;
  }
  for (size_t i = 0; i < num_keys; ++i) made.value().Fill(keys[i], values + i * dim);
  return 0;
}
