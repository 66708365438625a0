#ifndef SLUICE_BRIDGE_RUN_H_
#define SLUICE_BRIDGE_RUN_H_

#include <stddef.h>
#include <stdint.h>

#include "tensorflow/c/c_api.h"

// Dimensions that a sluice_value has room for; a tensor of higher rank is asked
// for its dimensions by sluice_dims.
#define SLUICE_DIMS 8

// What Go wants to know of a tensor, gathered in one call.
typedef struct {
  TF_Tensor* tensor;
  void* data;
  size_t bytes;
  int64_t elements;
  int32_t dtype;
  int32_t rank;
  int64_t dims[SLUICE_DIMS];
} sluice_value;

// A tensor with memory of its own, aligned as TensorFlow wants it. NULL when
// there is no memory for it. String elements begin as empty strings, others as
// zeros if `zero` is set.
TF_Tensor* sluice_new_tensor(int dtype, const int64_t* dims, int rank, size_t bytes, int zero);

// A tensor on memory that Go has pinned; the Go function sluiceUnpin gets the
// handle when TensorFlow drops its last reference.
TF_Tensor* sluice_borrow_tensor(int dtype, const int64_t* dims, int rank, void* data,
                                size_t bytes, uintptr_t handle);

// Another tensor on the same buffer. NULL, and the reason in status, when
// TensorFlow can't share it.
TF_Tensor* sluice_share_tensor(const TF_Tensor* from, TF_Status* status);

void sluice_describe(TF_Tensor* tensor, sluice_value* value);
void sluice_dims(const TF_Tensor* tensor, int64_t* dims);

void sluice_set_string(void* data, int64_t i, const char* from, size_t size);
void sluice_get_strings(const void* data, int64_t first, int n, const char** at, size_t* sizes);

#endif  // SLUICE_BRIDGE_RUN_H_
