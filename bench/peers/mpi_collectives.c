// A collective of MPI, f32, sum, root 0, timed call by call as `tutti bench` does it: the time of a call is the maximum
// over the ranks. Prints one JSON row for each size.
//
//   mpirun -n RANKS mpi_collectives COLLECTIVE LIBRARY TRANSPORT SECONDS [--rewrite] BYTES…
//
// COLLECTIVE and BYTES mean what they mean to `tutti bench`: BYTES is the larger of a rank's input and output. LIBRARY
// and TRANSPORT are copied into the rows. SECONDS bounds the timed calls of one size. With --rewrite every rank rewrites
// its whole input before each call, outside the timed region, with a barrier between.
#define _GNU_SOURCE  // madvise
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { kWarmUps = 5, kMinCalls = 5, kMaxCalls = 20000, kPeriod = 4093 /* prime */, kRankStep = 64 };
// MADV_COLLAPSE of Linux 6.1 has a number here, because the headers of Debian 12 do not have its name.
enum { kAlignment = 4096, kLargePage = 2 << 20, kCollapse = 25 };

// What a rank passes to a call. A block is all of the data, or one rank's share where a collective splits the data.
typedef struct {
  const float* in;
  float* out;
  int count;  // elements of a block
  int rank, size;
  int *counts, *starts;  // of the blocks, for all_to_all_v
} Call;

static void AllReduce(const Call* c) {
  MPI_Allreduce(MPI_IN_PLACE, c->out, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void ReduceScatter(const Call* c) {
  MPI_Reduce_scatter_block(c->in, c->out, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void AllGather(const Call* c) {
  MPI_Allgather(c->in, c->count, MPI_FLOAT, c->out, c->count, MPI_FLOAT, MPI_COMM_WORLD);
}
static void Broadcast(const Call* c) { MPI_Bcast(c->out, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD); }
static void Reduce(const Call* c) {
  MPI_Reduce(c->in, c->out, c->count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}
static void Gather(const Call* c) {
  MPI_Gather(c->in, c->count, MPI_FLOAT, c->out, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void Scatter(const Call* c) {
  MPI_Scatter(c->in, c->count, MPI_FLOAT, c->out, c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void AllToAll(const Call* c) {
  MPI_Alltoall(c->in, c->count, MPI_FLOAT, c->out, c->count, MPI_FLOAT, MPI_COMM_WORLD);
}
static void AllToAllV(const Call* c) {
  MPI_Alltoallv(c->in, c->counts, c->starts, MPI_FLOAT, c->out, c->counts, c->starts, MPI_FLOAT, MPI_COMM_WORLD);
}
static void SendRecv(const Call* c) {
  MPI_Sendrecv(c->in, c->count, MPI_FLOAT, (c->rank + 1) % c->size, 0, c->out, c->count, MPI_FLOAT,
               (c->rank + c->size - 1) % c->size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// Where a block of the output comes from: the sum of all inputs, or the input of the root, of the rank before, or, for
// each block, of another rank.
typedef enum { kSum, kRoot, kPrevious, kOnePerBlock } Source;

typedef struct {
  const char* name;
  void (*call)(const Call*);
  Source source;
  int splits_input, splits_output, in_place, output_at_root;
} Collective;

// broadcast is in place because MPI has no other form of it, all_reduce because gradients are reduced in place.
static const Collective kCollectives[] = {
    {"all_reduce", AllReduce, kSum, .in_place = 1},
    {"reduce_scatter", ReduceScatter, kSum, .splits_input = 1},
    {"all_gather", AllGather, kOnePerBlock, .splits_output = 1},
    {"broadcast", Broadcast, kRoot, .in_place = 1},
    {"reduce", Reduce, kSum, .output_at_root = 1},
    {"gather", Gather, kOnePerBlock, .splits_output = 1, .output_at_root = 1},
    {"scatter", Scatter, kRoot, .splits_input = 1},
    {"all_to_all", AllToAll, kOnePerBlock, .splits_input = 1, .splits_output = 1},
    {"all_to_all_v", AllToAllV, kOnePerBlock, .splits_input = 1, .splits_output = 1},
    {"send_recv", SendRecv, .source = kPrevious},
};

static const Collective* Find(const char* name) {
  for (size_t i = 0; i < sizeof kCollectives / sizeof *kCollectives; ++i) {
    if (strcmp(kCollectives[i].name, name) == 0) return &kCollectives[i];
  }
  return NULL;
}

static long InputCount(const Collective* collective, const Call* c) {
  if (collective->source == kRoot && c->rank != 0) return 0;
  return (long)c->count * (collective->splits_input ? c->size : 1);
}

static long OutputCount(const Collective* collective, const Call* c) {
  if (collective->output_at_root && c->rank != 0) return 0;
  return (long)c->count * (collective->splits_output ? c->size : 1);
}

// Small integers, so that sums are exact in any order.
static void Fill(float* data, long count, int rank) {
  for (long start = 0; start < count; start += kPeriod) {
    const long length = count - start < kPeriod ? count - start : kPeriod;
    for (long i = 0; i < length; ++i) data[start + i] = (float)(i + kRankStep * rank);
  }
}

// Elements of `block`, whose first is `first` in the inputs, that are not what Fill has made of each of `inputs` inputs.
static long CountWrong(const float* block, long first, int count, int inputs, int sum_of_ranks) {
  long wrong = 0;
  for (long i = 0; i < count; ++i) {
    wrong += block[i] != (float)((first + i) % kPeriod * inputs + kRankStep * sum_of_ranks);
  }
  return wrong;
}

static long Check(const Collective* collective, const Call* c, float* in) {
  const long out_count = OutputCount(collective, c);
  memset(c->out, 0x5A, (size_t)out_count * sizeof(float));
  Fill(in, InputCount(collective, c), c->rank);
  MPI_Barrier(MPI_COMM_WORLD);
  collective->call(c);
  const int n = c->size;
  const long first = collective->splits_input ? (long)c->rank * c->count : 0;
  long wrong = 0;
  for (int block = 0; block < (c->count ? out_count / c->count : 0); ++block) {
    const int of_source[] = {n * (n - 1) / 2, 0, (c->rank + n - 1) % n, block};
    wrong += CountWrong(c->out + (long)block * c->count, first, c->count, collective->source == kSum ? n : 1,
                        of_source[collective->source]);
  }
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  return wrong;
}

static double TimedCall(const Collective* collective, const Call* c, float* rewritten) {
  if (rewritten) {
    Fill(rewritten, InputCount(collective, c), c->rank);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  const double start = MPI_Wtime();
  collective->call(c);
  return MPI_Wtime() - start;
}

// Seconds that `calls` calls take together, the maximum over the ranks.
static double TimeOfBatch(const Collective* collective, const Call* c, float* rewritten, int calls) {
  double time = 0;
  for (int i = 0; i < calls; ++i) time += TimedCall(collective, c, rewritten);
  MPI_Allreduce(MPI_IN_PLACE, &time, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return time;
}

// Makes the warm-up calls, in batches that double until a batch takes a tenth of `seconds`. Returns the number of calls
// that fit into `seconds`, by the time of the last batch.
static int WarmUp(const Collective* collective, const Call* c, float* rewritten, double seconds) {
  int batch = kWarmUps;
  double time = TimeOfBatch(collective, c, rewritten, batch);
  while (time < seconds / 10 && batch < kMaxCalls) time = TimeOfBatch(collective, c, rewritten, batch *= 2);
  const double calls = seconds / time * batch;
  return calls < kMinCalls ? kMinCalls : calls > kMaxCalls ? kMaxCalls : (int)calls;
}

static int Ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

// Seconds that the calls take together, the maximum over the ranks. On rank 0, `slowest` gets the sorted times of the
// calls, each the maximum over the ranks.
static double TimeCalls(const Collective* collective, const Call* c, float* rewritten, int calls, double* slowest) {
  static double times[kMaxCalls];
  MPI_Barrier(MPI_COMM_WORLD);
  double total = 0;
  for (int i = 0; i < calls; ++i) total += times[i] = TimedCall(collective, c, rewritten);
  MPI_Reduce(times, slowest, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (c->rank == 0) qsort(slowest, (size_t)calls, sizeof *slowest, Ascending);
  MPI_Allreduce(MPI_IN_PLACE, &total, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return total;
}

// Memory of zeros: large buffers are on large pages where the kernel has them, because those of Tutti's arena are, too.
static float* Allocate(size_t bytes) {
  const int large = bytes >= kLargePage;
  const size_t alignment = large ? kLargePage : kAlignment;
  const size_t whole = (bytes / alignment + 1) * alignment;
  float* memory = aligned_alloc(alignment, whole);
  if (!memory) MPI_Abort(MPI_COMM_WORLD, 3);
  if (large) madvise(memory, whole, MADV_HUGEPAGE);
  memset(memory, 0, whole);
  if (large) madvise(memory, whole, kCollapse);  // pages that the allocator has used before
  return memory;
}

static void Measure(const Collective* collective, Call* c, size_t bytes, double seconds, int rewrite, const char* labels) {
  const int blocks = collective->splits_input || collective->splits_output ? c->size : 1;
  const size_t count = bytes / sizeof(float) / (size_t)blocks;
  c->count = count > 0 ? (int)count : 1;
  for (int i = 0; i < c->size; ++i) {
    c->counts[i] = c->count;
    c->starts[i] = i * c->count;
  }
  bytes = (size_t)c->count * (size_t)blocks * sizeof(float);
  c->out = Allocate(bytes);
  float* in = collective->in_place ? c->out : Allocate(bytes);
  c->in = in;
  static double slowest[kMaxCalls];
  long wrong = Check(collective, c, in);
  const int calls = WarmUp(collective, c, rewrite ? in : NULL, seconds);
  memset(in, 0, bytes);  // repeated sums in place of values other than 0 would grow to infinity
  const double total = TimeCalls(collective, c, rewrite ? in : NULL, calls, slowest);
  wrong += Check(collective, c, in);
  if (c->rank == 0) {
    printf("{%s, \"ranks\": %d, \"bytes\": %zu, \"in_place\": %s, \"time_us\": %.3f, \"p50_us\": %.3f, \"p99_us\": %.3f, \"max_us\": %.3f, "
           "\"calls\": %d, \"wrong\": %ld, \"large_pages\": true}\n",
           labels, c->size, bytes, collective->in_place ? "true" : "false", total / calls * 1e6, (slowest[(calls - 1) / 2] + slowest[calls / 2]) / 2 * 1e6,
           slowest[(99 * calls + 99) / 100 - 1] * 1e6, slowest[calls - 1] * 1e6, calls, wrong);
    fflush(stdout);
  }
  if (in != c->out) free(in);
  free(c->out);
}

// The fields of a row that are the same for all sizes.
static void Describe(char** argv, char* labels, size_t size) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(version, &length);
  version[strcspn(version, ",\n")] = 0;
  for (char* c = version; *c; ++c) {
    if (*c == '\t' || *c == '"') *c = ' ';
  }
  snprintf(labels, size, "\"collective\": \"%s\", \"library\": \"%s\", \"version\": \"%s\", \"transport\": \"%s\"", argv[1],
           argv[2], version, argv[3]);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Call call = {0};
  MPI_Comm_rank(MPI_COMM_WORLD, &call.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &call.size);
  const Collective* collective = argc > 1 ? Find(argv[1]) : NULL;
  if (argc < 6 || !collective) {
    const char* arguments = "COLLECTIVE LIBRARY TRANSPORT SECONDS [--rewrite] BYTES...";
    if (call.rank == 0) fprintf(stderr, "usage: %s %s\n", argv[0], arguments);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int rewrite = strcmp(argv[5], "--rewrite") == 0;
  char labels[MPI_MAX_LIBRARY_VERSION_STRING + 200];
  Describe(argv, labels, sizeof labels);
  call.counts = calloc((size_t)call.size, sizeof(int));
  call.starts = calloc((size_t)call.size, sizeof(int));
  for (int i = 5 + rewrite; i < argc; ++i) {
    Measure(collective, &call, strtoull(argv[i], NULL, 10), atof(argv[4]), rewrite, labels);
  }
  free(call.counts);
  free(call.starts);
  MPI_Finalize();
  return 0;
}
