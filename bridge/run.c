#include "run.h"

#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"
#include "tensorflow/c/tf_tstring.h"

enum { kAlignment = 64 };  // TF_TensorDefaultAlignment() on x86-64

static void free_base(void* data, size_t bytes, void* base) { free(base); }

static void free_strings(void* data, size_t bytes, void* base) {
  TF_TString* at = (TF_TString*)data;
  for (size_t i = 0; i < bytes / sizeof(TF_TString); i++) TF_TString_Dealloc(&at[i]);
  free(base);
}

TF_Tensor* sluice_new_tensor(int dtype, const int64_t* dims, int rank, size_t bytes, int zero) {
  if (bytes > SIZE_MAX - kAlignment) return NULL;
  int strings = dtype == TF_STRING;
  // All zeros is the empty TF_TString. calloc gets large blocks from the kernel
  // untouched, so zeroing them costs nothing.
  void* base = zero || strings ? calloc(1, bytes + kAlignment) : malloc(bytes + kAlignment);
  if (base == NULL) return NULL;
  uintptr_t at = ((uintptr_t)base + kAlignment - 1) & ~(uintptr_t)(kAlignment - 1);
  return TF_NewTensor((TF_DataType)dtype, dims, rank, (void*)at, bytes,
                      strings ? free_strings : free_base, base);
}

static void unpin(void* data, size_t bytes, void* handle) { sluiceUnpin((uintptr_t)handle); }

TF_Tensor* sluice_borrow_tensor(int dtype, const int64_t* dims, int rank, void* data,
                                size_t bytes, uintptr_t handle) {
  return TF_NewTensor((TF_DataType)dtype, dims, rank, data, bytes, unpin, (void*)handle);
}

TF_Tensor* sluice_share_tensor(const TF_Tensor* from, TF_Status* status) {
  int rank = TF_NumDims(from);
  int64_t* dims = (int64_t*)calloc(rank > 0 ? rank : 1, sizeof(int64_t));
  sluice_dims(from, dims);
  int64_t none = 0;
  TF_Tensor* to = TF_AllocateTensor(TF_TensorType(from), &none, 1, 0);
  TF_TensorBitcastFrom(from, TF_TensorType(from), to, dims, rank, status);
  free(dims);
  if (TF_GetCode(status) != TF_OK) {
    TF_DeleteTensor(to);
    return NULL;
  }
  return to;
}

void sluice_dims(const TF_Tensor* tensor, int64_t* dims) {
  int rank = TF_NumDims(tensor);
  for (int i = 0; i < rank; i++) dims[i] = TF_Dim(tensor, i);
}

void sluice_describe(TF_Tensor* tensor, sluice_value* value) {
  value->tensor = tensor;
  value->dtype = TF_TensorType(tensor);
  value->rank = TF_NumDims(tensor);
  value->data = TF_TensorData(tensor);
  value->bytes = TF_TensorByteSize(tensor);
  value->elements = 1;
  for (int i = 0; i < value->rank; i++) {
    int64_t d = TF_Dim(tensor, i);
    value->elements *= d;
    if (i < SLUICE_DIMS) value->dims[i] = d;
  }
}

void sluice_set_string(void* data, int64_t i, const char* from, size_t size) {
  TF_TString_Copy((TF_TString*)data + i, from, size);
}

void sluice_get_strings(const void* data, int64_t first, int n, const char** at, size_t* sizes) {
  const TF_TString* strings = (const TF_TString*)data + first;
  for (int i = 0; i < n; i++) {
    at[i] = TF_TString_GetDataPointer(&strings[i]);
    sizes[i] = TF_TString_GetSize(&strings[i]);
  }
}
