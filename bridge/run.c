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

sluice_step* sluice_new_step(TF_Session* session, TF_Graph* graph, size_t* seen, int in_caller,
                             int nfeeds, int nfetches, int ntargets) {
  sluice_step* step = (sluice_step*)calloc(1, sizeof(sluice_step));
  step->session = session;
  step->graph = graph;
  step->seen = seen;
  step->in_caller = in_caller;
  step->nfeeds = nfeeds;
  step->nfetches = nfetches;
  step->ntargets = ntargets;
  step->feeds = (TF_Output*)calloc(nfeeds + 1, sizeof(TF_Output));
  step->fetches = (TF_Output*)calloc(nfetches + 1, sizeof(TF_Output));
  step->targets = (TF_Operation**)calloc(ntargets + 1, sizeof(TF_Operation*));
  return step;
}

void sluice_delete_step(sluice_step* step) {
  free(step->feeds);
  free(step->fetches);
  free(step->targets);
  free(step);
}

sluice_frame* sluice_new_frame(const sluice_step* step) {
  sluice_frame* frame = (sluice_frame*)calloc(1, sizeof(sluice_frame));
  frame->step = step;
  frame->feeds = (TF_Tensor**)calloc(step->nfeeds + 1, sizeof(TF_Tensor*));
  frame->fetched = (TF_Tensor**)calloc(step->nfetches + 1, sizeof(TF_Tensor*));
  frame->values = (sluice_value*)calloc(step->nfetches + 1, sizeof(sluice_value));
  frame->bound = (sluice_target*)calloc(step->nfetches + 1, sizeof(sluice_target));
  frame->status = TF_NewStatus();
  frame->options.data = frame->option_bytes;
  return frame;
}

void sluice_delete_frame(sluice_frame* frame) {
  TF_DeleteStatus(frame->status);
  free(frame->feeds);
  free(frame->fetched);
  free(frame->values);
  free(frame->bound);
  free(frame);
}

// Serialized tensorflow.RunOptions: timeout_in_ms is field 2,
// inter_op_thread_pool field 3, whose -1 takes ten bytes.
static size_t write_varint(uint8_t* at, uint64_t v) {
  size_t n = 0;
  for (; v >= 0x80; v >>= 7) at[n++] = (uint8_t)v | 0x80;
  at[n++] = (uint8_t)v;
  return n;
}

static const TF_Buffer* run_options(sluice_frame* frame, int64_t timeout_ms) {
  if (timeout_ms <= 0 && !frame->step->in_caller) return NULL;
  if (timeout_ms > 0) {
    frame->option_bytes[0] = 2 << 3;
    frame->options.length = 1 + write_varint(frame->option_bytes + 1, timeout_ms);
  } else {
    frame->option_bytes[0] = 3 << 3;
    frame->options.length = 1 + write_varint(frame->option_bytes + 1, (uint64_t)-1);
  }
  return &frame->options;
}

// A run copies all of the graph into its session, so all counts as seen. A place is
// that of an operation: at the end of the graph TensorFlow moves it on all the same.
static void see(const sluice_step* step) {
  size_t before = __atomic_load_n(step->seen, __ATOMIC_RELAXED), last = before, next = before;
  while (TF_GraphNextOperation(step->graph, &next) != NULL) last = next;
  while (last > before && !__atomic_compare_exchange_n(step->seen, &before, last, 0,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    continue;
}

size_t sluice_seen(const size_t* seen) { return __atomic_load_n(seen, __ATOMIC_RELAXED); }

int sluice_is_seen(TF_Graph* graph, const TF_Operation* op, size_t place) {
  size_t at = 0;
  for (;;) {
    const TF_Operation* next = TF_GraphNextOperation(graph, &at);
    if (next == NULL || at > place) return 0;
    if (next == op) return 1;
  }
}

int sluice_run(sluice_frame* frame, int64_t timeout_ms) {
  const sluice_step* step = frame->step;
  see(step);
  TF_SessionRun(step->session, run_options(frame, timeout_ms), step->feeds, frame->feeds,
                step->nfeeds, step->fetches, frame->fetched, step->nfetches,
                (const TF_Operation* const*)step->targets, step->ntargets, NULL, frame->status);
  int code = TF_GetCode(frame->status);
  for (int i = 0; i < step->nfetches; i++) {
    sluice_value* value = &frame->values[i];
    if (value->tensor != NULL) TF_DeleteTensor(value->tensor);
    value->tensor = NULL;
    if (code != TF_OK) continue;
    sluice_describe(frame->fetched[i], value);
    sluice_target* bound = &frame->bound[i];
    if (bound->into == NULL) continue;
    bound->mismatch = value->bytes != bound->bytes;
    if (!bound->mismatch) memcpy(bound->into, value->data, value->bytes);
    TF_DeleteTensor(value->tensor);
    value->tensor = NULL;
  }
  return code;
}

int sluice_parents(TF_Operation* op, TF_Output* data, int ndata, TF_Operation** control,
                   int ncontrol, const char** type, size_t* size, int* found_control) {
  int n = TF_OperationNumInputs(op);
  if (n > 0 && n <= ndata) TF_OperationAllInputs(op, data, n);
  *found_control = TF_OperationNumControlInputs(op);
  if (*found_control > 0 && *found_control <= ncontrol)
    TF_OperationGetControlInputs(op, control, ncontrol);
  *type = TF_OperationOpType(op);
  *size = strlen(*type);
  return n;
}
