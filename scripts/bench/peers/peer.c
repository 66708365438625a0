// The C peer of the benchmarks: what a C program gets from the same graph through TF_SessionRun.
//
//   peer <spec>
//
// The spec is a text file: `graph <path>`, then any of `init <op>`, `target <op>`,
// `fetch <op> <index>` and `feed <op> <index> <rank> <dims…>` (float32, filled with a fixed sequence).
// Each line read from standard input, `<setting> <runs>`, is answered by nanoseconds per run;
// `<setting>@<threads>` shares the runs among so many threads.
// The settings are all the ways a C program can ask for; the caller keeps the fastest.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tensorflow/c/c_api.h"

enum { kMaxPorts = 64 };

static TF_Graph* graph;
static TF_Output feeds[kMaxPorts], fetches[kMaxPorts];
static TF_Tensor* values[kMaxPorts];
static const TF_Operation* targets[kMaxPorts];
static TF_Operation* init_op;
static int nfeeds, nfetches, ntargets;

static void check(TF_Status* status, const char* doing) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "peer: %s: %s\n", doing, TF_Message(status));
  exit(1);
}

static TF_Operation* op(const char* name) {
  TF_Operation* found = TF_GraphOperationByName(graph, name);
  if (!found) {
    fprintf(stderr, "peer: no operation %s in the graph\n", name);
    exit(1);
  }
  return found;
}

static void unused_free(void* data, size_t length) { free(data); }

static void import_graph(const char* path) {
  FILE* f = fopen(path, "rb");
  if (!f) { perror(path); exit(1); }
  fseek(f, 0, SEEK_END);
  long size = ftell(f);
  rewind(f);
  void* data = malloc(size);
  if (fread(data, 1, size, f) != (size_t)size) { perror(path); exit(1); }
  fclose(f);
  TF_Buffer* buffer = TF_NewBuffer();
  buffer->data = data;
  buffer->length = size;
  buffer->data_deallocator = unused_free;
  TF_Status* status = TF_NewStatus();
  TF_ImportGraphDefOptions* options = TF_NewImportGraphDefOptions();
  graph = TF_NewGraph();
  TF_GraphImportGraphDef(graph, buffer, options, status);
  check(status, "importing the graph");
  TF_DeleteImportGraphDefOptions(options);
  TF_DeleteBuffer(buffer);
  TF_DeleteStatus(status);
}

static void read_spec(const char* path) {
  FILE* f = fopen(path, "r");
  if (!f) { perror(path); exit(1); }
  char word[64], name[1024];
  while (fscanf(f, "%63s %1023s", word, name) == 2) {
    int index;
    if (!strcmp(word, "graph")) {
      import_graph(name);
    } else if (!strcmp(word, "init")) {
      init_op = op(name);
    } else if (!strcmp(word, "target")) {
      targets[ntargets++] = op(name);
    } else if (!strcmp(word, "fetch") && fscanf(f, "%d", &index) == 1) {
      fetches[nfetches++] = (TF_Output){op(name), index};
    } else if (!strcmp(word, "feed")) {
      int rank;
      int64_t dims[8], n = 1;
      if (fscanf(f, "%d %d", &index, &rank) != 2 || rank > 8) exit(1);
      for (int i = 0; i < rank; i++) {
        if (fscanf(f, "%ld", &dims[i]) != 1) exit(1);
        n *= dims[i];
      }
      TF_Tensor* t = TF_AllocateTensor(TF_FLOAT, dims, rank, n * sizeof(float));
      float* data = TF_TensorData(t);
      for (int64_t i = 0; i < n; i++) data[i] = (float)((i * 7919) % 101) / 101.0f;
      feeds[nfeeds] = (TF_Output){op(name), index};
      values[nfeeds++] = t;
    } else {
      fprintf(stderr, "peer: unknown line %s %s\n", word, name);
      exit(1);
    }
  }
  fclose(f);
}

// A setting: a serialized ConfigProto for the session and a serialized RunOptions for each run.
typedef struct {
  const char* name;
  const char* config;
  size_t config_size;
  const char* run;
  size_t run_size;
  TF_Session* session;
} Setting;

#define BYTES(s) s, sizeof(s) - 1
static Setting settings[] = {
    {"default", BYTES(""), BYTES(""), NULL},
    // RunOptions.inter_op_thread_pool = -1: the kernels run in the caller's thread.
    {"caller", BYTES(""), BYTES("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), NULL},
    // ConfigProto.intra_op_parallelism_threads = inter_op_parallelism_threads = 1.
    {"one_thread", BYTES("\x10\x01\x28\x01"), BYTES(""), NULL},
    {"one_thread_caller", BYTES("\x10\x01\x28\x01"), BYTES("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), NULL},
    // ConfigProto.experimental.executor_type = "SINGLE_THREADED_EXECUTOR".
    {"single_threaded_executor", BYTES("\x82\x01\x1a\x1a\x18SINGLE_THREADED_EXECUTOR"), BYTES(""), NULL},
    {"single_threaded_executor_caller", BYTES("\x82\x01\x1a\x1a\x18SINGLE_THREADED_EXECUTOR"),
     BYTES("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), NULL},
};

static TF_Session* open_session(const Setting* s) {
  TF_Status* status = TF_NewStatus();
  TF_SessionOptions* options = TF_NewSessionOptions();
  TF_SetConfig(options, s->config, s->config_size, status);
  check(status, s->name);
  TF_Session* session = TF_NewSession(graph, options, status);
  check(status, "opening a session");
  TF_DeleteSessionOptions(options);
  if (init_op) {
    const TF_Operation* init[] = {init_op};
    TF_SessionRun(session, NULL, NULL, NULL, 0, NULL, NULL, 0, init, 1, NULL, status);
    check(status, "initializing");
  }
  TF_DeleteStatus(status);
  return session;
}

typedef struct {
  Setting* setting;
  int runs;
} Share;

static void* work(void* argument) {
  const Share* share = argument;
  const Setting* s = share->setting;
  TF_Status* status = TF_NewStatus();
  TF_Buffer* options = s->run_size ? TF_NewBufferFromString(s->run, s->run_size) : NULL;
  TF_Tensor* out[kMaxPorts];
  for (int i = 0; i < share->runs; i++) {
    TF_SessionRun(s->session, options, feeds, values, nfeeds, fetches, out, nfetches, targets, ntargets, NULL, status);
    check(status, "running");
    for (int k = 0; k < nfetches; k++) TF_DeleteTensor(out[k]);
  }
  if (options) TF_DeleteBuffer(options);
  TF_DeleteStatus(status);
  return NULL;
}

static double run(Setting* s, int runs, int nthreads) {
  if (!s->session) s->session = open_session(s);
  pthread_t threads[kMaxPorts];
  Share share = {s, runs / nthreads > 0 ? runs / nthreads : 1};
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 1; i < nthreads; i++)
    if (pthread_create(&threads[i], NULL, work, &share)) exit(1);
  work(&share);
  for (int i = 1; i < nthreads; i++) pthread_join(threads[i], NULL);
  clock_gettime(CLOCK_MONOTONIC, &end);
  return ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / ((double)share.runs * nthreads);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: peer SPEC\n");
    return 2;
  }
  read_spec(argv[1]);
  char name[64];
  int runs;
  while (scanf("%63s %d", name, &runs) == 2) {
    Setting* chosen = NULL;
    int nthreads = 1;
    char* at = strchr(name, '@');
    if (at) {
      nthreads = atoi(at + 1);
      *at = 0;
    }
    if (nthreads < 1 || nthreads > kMaxPorts) return 2;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
      if (!strcmp(settings[i].name, name)) chosen = &settings[i];
    if (!chosen) {
      fprintf(stderr, "peer: no setting %s\n", name);
      return 2;
    }
    printf("%.1f\n", run(chosen, runs, nthreads));
    fflush(stdout);
  }
  return 0;
}
