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

// What all runs of a prepared step have in common. Read only once it is made.
typedef struct {
  TF_Session* session;
  TF_Graph* graph;
  size_t* seen;  // how far the session's runs have seen the graph
  int in_caller;  // without a time limit, run in the calling thread
  int nfeeds, nfetches, ntargets;
  TF_Output* feeds;
  TF_Output* fetches;
  TF_Operation** targets;
} sluice_step;

sluice_step* sluice_new_step(TF_Session* session, TF_Graph* graph, size_t* seen, int in_caller,
                             int nfeeds, int nfetches, int ntargets);
void sluice_delete_step(sluice_step* step);

// Where the result of a fetch goes besides its sluice_value: memory of the
// caller's that has just its size. NULL for nowhere.
typedef struct {
  void* into;
  size_t bytes;
  int mismatch;  // the last run gave another number of bytes
} sluice_target;

// The arguments and results of one run at a time of a step.
typedef struct {
  const sluice_step* step;
  TF_Tensor** feeds;
  TF_Tensor** fetched;  // scratch
  sluice_value* values;
  sluice_target* bound;
  TF_Status* status;
  TF_Buffer options;
  uint8_t option_bytes[16];
} sluice_frame;

sluice_frame* sluice_new_frame(const sluice_step* step);
void sluice_delete_frame(sluice_frame* frame);

// Runs the step with the frame's feeds, under a time limit if timeout_ms is
// above 0. Deletes the tensors that `values` still has from the last run, and
// describes the new ones there; those of bound fetches are copied to the caller's
// memory and deleted. Returns the status code.
int sluice_run(sluice_frame* frame, int64_t timeout_ms);

// The place in the graph, as TF_GraphNextOperation counts, of the last operation that
// the runs of a session have seen; and whether op was seen then.
size_t sluice_seen(const size_t* seen);
int sluice_is_seen(TF_Graph* graph, const TF_Operation* op, size_t place);

// The operations that op gets tensors from or waits for, data inputs first, at
// most n; returns how many there are. type and size are the op's type.
int sluice_parents(TF_Operation* op, TF_Output* data, int ndata, TF_Operation** control,
                   int ncontrol, const char** type, size_t* size, int* found_control);

#endif  // SLUICE_BRIDGE_RUN_H_
