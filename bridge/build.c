#include "build.h"

#include <stddef.h>

// A string is its length, its bytes and at least one NUL, padded to 8 bytes.
static const char* next_string(const uint64_t** at, size_t* length) {
  *length = (size_t)*(*at)++;
  const char* s = (const char*)*at;
  *at += *length / 8 + 1;
  return s;
}

// A description can't be deleted, only finished. One input more than the op has
// makes finishing fail, so that nothing is added and the description is freed.
static void abandon(TF_OperationDescription* description) {
  TF_Status* status = TF_NewStatus();
  TF_AddInputList(description, NULL, 0);
  TF_FinishOperation(description, status);
  TF_DeleteStatus(status);
}

// An output that is known to have more elements than 64 bits can count, such as
// Fill([2^40, 2^40], 1), is accepted by TensorFlow and aborts the process when a
// run folds constants.
static void check_sizes(TF_Graph* graph, TF_Operation* op, TF_Status* status) {
  enum { kDims = 254 };
  int64_t dims[kDims];
  int outputs = TF_OperationNumOutputs(op);
  for (int i = 0; i < outputs; i++) {
    TF_Output out = {op, i};
    int rank = TF_GraphGetTensorNumDims(graph, out, status);
    if (TF_GetCode(status) != TF_OK) return;
    if (rank < 2 || rank > kDims) continue;
    TF_GraphGetTensorShape(graph, out, dims, rank, status);
    if (TF_GetCode(status) != TF_OK) return;
    int64_t elements = 1;
    int overflow = 0, empty_or_unknown = 0;
    for (int d = 0; d < rank; d++) {
      if (dims[d] <= 0) empty_or_unknown = 1;
      else overflow |= __builtin_mul_overflow(elements, dims[d], &elements);
    }
    if (overflow && !empty_or_unknown) {
      TF_SetStatus(status, TF_INVALID_ARGUMENT,
                   "an output would have more elements than 64 bits can count; the node stays in the graph, unusable");
      return;
    }
  }
}

sluice_added sluice_add_operation(TF_Graph* graph, const uint64_t* at) {
  size_t length;
  const char* type = next_string(&at, &length);
  const char* name = next_string(&at, &length);
  const char* device = next_string(&at, &length);

  TF_OperationDescription* description = TF_NewOperation(graph, type, name);
  if (length > 0) TF_SetDevice(description, device);

  for (uint64_t n = *at++; n > 0; n--) {
    uint64_t size = *at++;
    if (size == UINT64_MAX) {
      TF_AddInput(description, *(const TF_Output*)at);
      at += 2;
    } else {
      TF_AddInputList(description, (const TF_Output*)at, (int)size);
      at += 2 * size;
    }
  }
  for (uint64_t n = *at++; n > 0; n--) TF_AddControlInput(description, (TF_Operation*)*at++);
  for (uint64_t n = *at++; n > 0; n--) TF_ColocateWith(description, (TF_Operation*)*at++);

  TF_Status* status = TF_NewStatus();
  for (uint64_t n = *at++; n > 0; n--) {
    const char* attribute = next_string(&at, &length);
    uint64_t tensors = *at++;
    if (tensors == 0) {  // an AttrValue proto
      const char* value = next_string(&at, &length);
      TF_SetAttrValueProto(description, attribute, value, length, status);
    } else if (tensors == 1) {
      TF_SetAttrTensor(description, attribute, (TF_Tensor*)*at++, status);
    } else {
      uint64_t size = *at++;
      TF_SetAttrTensorList(description, attribute, (TF_Tensor* const*)at, (int)size, status);
      at += size;
    }
    if (TF_GetCode(status) != TF_OK) {
      abandon(description);
      return (sluice_added){NULL, status};
    }
  }

  TF_Operation* op = TF_FinishOperation(description, status);
  if (TF_GetCode(status) != TF_OK) return (sluice_added){NULL, status};
  check_sizes(graph, op, status);
  if (TF_GetCode(status) != TF_OK) return (sluice_added){NULL, status};
  TF_DeleteStatus(status);
  return (sluice_added){op, NULL};
}

int sluice_next_operations(TF_Graph* graph, size_t* position, TF_Operation** ops, int n) {
  int i = 0;
  for (; i < n; i++) {
    ops[i] = TF_GraphNextOperation(graph, position);
    if (ops[i] == NULL) break;
  }
  return i;
}
