#ifndef SLUICE_BRIDGE_BUILD_H_
#define SLUICE_BRIDGE_BUILD_H_

#include <stdint.h>

#include "tensorflow/c/c_api.h"

// What adding an operation gives: the operation, or a status that the caller
// deletes.
typedef struct {
  TF_Operation* op;
  TF_Status* status;
} sluice_added;

// Adds the operation that the description at `at` (written by description in
// build.go) tells of. Nothing is added when it fails.
sluice_added sluice_add_operation(TF_Graph* graph, const uint64_t* at);

// Fills `ops` with up to `n` operations of the graph from *position on, moves
// *position, and returns how many there were.
int sluice_next_operations(TF_Graph* graph, size_t* position, TF_Operation** ops, int n);

#endif  // SLUICE_BRIDGE_BUILD_H_
