// MPI_Allreduce, f32, sum, in place, timed call by call as `tutti bench all_reduce` does it: the time of a call is the
// maximum over the ranks. Prints one JSON row for each size.
//
//   mpirun -n RANKS mpi_all_reduce LIBRARY TRANSPORT SECONDS [--rewrite] BYTES…
//
// LIBRARY and TRANSPORT are copied into the rows. SECONDS bounds the timed calls of one size. With --rewrite every rank
// rewrites its whole buffer before each call, outside the timed region, with a barrier between.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWarmUps = 5, kMinCalls = 5, kMaxCalls = 20000 };

static int Ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

// Rank r contributes the value r + 1, so that every sum is exact.
static void Fill(float* data, long count, int rank) {
  for (long i = 0; i < count; ++i) data[i] = (float)(rank + 1);
}

static double TimedCall(float* data, long count, int rank, int rewrite) {
  if (rewrite) {
    Fill(data, count, rank);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  const double start = MPI_Wtime();
  MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return MPI_Wtime() - start;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 5) {
    if (rank == 0) fprintf(stderr, "usage: %s LIBRARY TRANSPORT SECONDS [--rewrite] BYTES...\n", argv[0]);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const double budget = atof(argv[3]);
  int first = 4, rewrite = 0;
  if (strcmp(argv[first], "--rewrite") == 0) {
    rewrite = 1;
    ++first;
  }
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(version, &length);
  version[strcspn(version, ",\n")] = 0;
  for (char* c = version; *c; ++c) {
    if (*c == '\t' || *c == '"') *c = ' ';
  }

  double* times = malloc(kMaxCalls * sizeof *times);
  double* slowest = malloc(kMaxCalls * sizeof *slowest);
  for (int argument = first; argument < argc; ++argument) {
    const long bytes = atol(argv[argument]), count = bytes / (long)sizeof(float);
    float* data = aligned_alloc(4096, (size_t)(bytes + 4095) / 4096 * 4096);
    memset(data, 0, (size_t)bytes);
    double warm_up = 0;
    for (int i = 0; i < kWarmUps; ++i) warm_up = TimedCall(data, count, rank, rewrite);
    int calls = (int)(budget / (warm_up > 1e-7 ? warm_up : 1e-7));
    calls = calls < kMinCalls ? kMinCalls : calls > kMaxCalls ? kMaxCalls : calls;
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);

    Fill(data, count, rank);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    long wrong = 0;
    for (long i = 0; i < count; ++i) wrong += data[i] != (float)(size * (size + 1) / 2);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);

    memset(data, 0, (size_t)bytes);  // repeated sums of values other than 0 would grow to infinity
    for (int i = 0; i < calls; ++i) times[i] = TimedCall(data, count, rank, rewrite);
    MPI_Reduce(times, slowest, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      qsort(slowest, (size_t)calls, sizeof *slowest, Ascending);
      printf("{\"library\": \"%s\", \"version\": \"%s\", \"transport\": \"%s\", \"ranks\": %d, \"bytes\": %ld, "
             "\"p50_us\": %.3f, \"p99_us\": %.3f, \"max_us\": %.3f, \"calls\": %d, \"wrong\": %ld}\n",
             argv[1], version, argv[2], size, bytes, slowest[calls / 2] * 1e6, slowest[(int)(calls * 0.99)] * 1e6,
             slowest[calls - 1] * 1e6, calls, wrong);
      fflush(stdout);
    }
    free(data);
  }
  free(times);
  free(slowest);
  MPI_Finalize();
  return 0;
}
