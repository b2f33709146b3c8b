// NCCL as a table of functions, loaded with dlopen when it is first used: one binary runs with and without NCCL. The
// declarations here are NCCL's binary interface, so that nccl.h is not needed to build; a test compares them with
// nccl.h where that is installed. Tests pass another table, which works on host memory (tests/harness/fake_nccl.h).
#ifndef TUTTI_TRANSPORTS_NCCL_LIBRARY_H_
#define TUTTI_TRANSPORTS_NCCL_LIBRARY_H_

#include <climits>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct CUstream_st;  // NOLINT(readability-identifier-naming): CUDA's own handle

namespace tutti::nccl {

// ncclComm_t and ncclWindow_t: handles that only NCCL looks into.
using Comm = struct OpaqueComm*;
using Window = struct OpaqueWindow*;

// ncclUniqueId: what rank 0 makes and every rank of a new communicator is given. Secret: whoever has it may join.
struct UniqueId {
  char bytes[128];
};

// ncclResult_t.
enum class Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,  // a non-blocking communicator is not done with what it was asked for
};

// No error, done or not.
constexpr bool IsGood(Result result) { return result == Result::kSuccess || result == Result::kInProgress; }

// ncclDataType_t.
enum class DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

// ncclRedOp_t. Values from kFirstCreated on are operators that a communicator has created.
enum class RedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4, kFirstCreated = 5 };

// ncclScalarResidence_t.
enum class ScalarResidence : int { kDevice = 0, kHostImmediate = 1 };

// ncclConfig_t of NCCL 2.28. An older NCCL reads the fields that it knows, a newer one fills its own fields by
// `version`.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 22809;
  int blocking = INT_MIN;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
  const char* comm_name = nullptr;
  int collnet_enable = INT_MIN;
  int cta_policy = INT_MIN;
  int shrink_share = INT_MIN;
  int nvls_ctas = INT_MIN;
  int channels_per_net_peer = INT_MIN;
  int nvlink_centric_sched = INT_MIN;
};

inline constexpr int kNoColor = -1;         // NCCL_SPLIT_NOCOLOR
inline constexpr int kShrinkAbort = 1;      // NCCL_SHRINK_ABORT: ends the parent's operations first
inline constexpr int kSymmetricWindow = 1;  // NCCL_WIN_COLL_SYMMETRIC

// Of a non-blocking communicator (Config::blocking = 0), a function that takes one may return kInProgress, and then
// only get_async_error and comm_abort may be called with the communicator until get_async_error says otherwise. Of a
// blocking one, functions return when they are done, which may be when other ranks have come; get_async_error may be
// called meanwhile, and comm_abort by NcclTransport::Abort.
struct Library {
  Result (*get_version)(int* version) = nullptr;
  Result (*get_unique_id)(UniqueId* id) = nullptr;
  const char* (*get_error_string)(Result result) = nullptr;
  const char* (*get_last_error)(Comm comm) = nullptr;

  Result (*comm_init_rank_config)(Comm* comm, int size, UniqueId id, int rank, Config* config) = nullptr;
  Result (*comm_split)(Comm comm, int color, int key, Comm* made, Config* config) = nullptr;
  Result (*comm_finalize)(Comm comm) = nullptr;
  Result (*comm_destroy)(Comm comm) = nullptr;
  Result (*comm_abort)(Comm comm) = nullptr;
  Result (*comm_get_async_error)(Comm comm, Result* error) = nullptr;
  Result (*comm_count)(Comm comm, int* size) = nullptr;
  Result (*comm_user_rank)(Comm comm, int* rank) = nullptr;

  Result (*group_start)() = nullptr;
  Result (*group_end)() = nullptr;
  Result (*all_reduce)(const void* src, void* dst, std::size_t count, DataType type, RedOp op, Comm comm,
                       CUstream_st* stream) = nullptr;
  Result (*reduce)(const void* src, void* dst, std::size_t count, DataType type, RedOp op, int root, Comm comm,
                   CUstream_st* stream) = nullptr;
  Result (*broadcast)(const void* src, void* dst, std::size_t count, DataType type, int root, Comm comm,
                      CUstream_st* stream) = nullptr;
  Result (*reduce_scatter)(const void* src, void* dst, std::size_t count, DataType type, RedOp op, Comm comm,
                           CUstream_st* stream) = nullptr;
  Result (*all_gather)(const void* src, void* dst, std::size_t count, DataType type, Comm comm,
                       CUstream_st* stream) = nullptr;
  Result (*send)(const void* src, std::size_t count, DataType type, int peer, Comm comm, CUstream_st* stream) = nullptr;
  Result (*recv)(void* dst, std::size_t count, DataType type, int peer, Comm comm, CUstream_st* stream) = nullptr;
  Result (*red_op_create_pre_mul_sum)(RedOp* op, void* scalar, DataType type, ScalarResidence residence,
                                      Comm comm) = nullptr;
  Result (*red_op_destroy)(RedOp op, Comm comm) = nullptr;

  // The functions below are null where the loaded NCCL is too old to have them.
  Result (*comm_register)(Comm comm, void* data, std::size_t bytes, void** handle) = nullptr;               // 2.19
  Result (*comm_deregister)(Comm comm, void* handle) = nullptr;                                             // 2.19
  Result (*mem_alloc)(void** data, std::size_t bytes) = nullptr;                                            // 2.19
  Result (*mem_free)(void* data) = nullptr;                                                                 // 2.19
  Result (*comm_shrink)(Comm comm, int* dead, int count, Comm* made, Config* config, int flags) = nullptr;  // 2.27
  Result (*comm_window_register)(Comm comm, void* data, std::size_t bytes, Window* window,
                                 int flags) = nullptr;                   // 2.27
  Result (*comm_window_deregister)(Comm comm, Window window) = nullptr;  // 2.27
  Result (*all_to_all)(const void* src, void* dst, std::size_t count, DataType type, Comm comm,
                       CUstream_st* stream) = nullptr;  // 2.28
  Result (*gather)(const void* src, void* dst, std::size_t count, DataType type, int root, Comm comm,
                   CUstream_st* stream) = nullptr;  // 2.28
  Result (*scatter)(const void* src, void* dst, std::size_t count, DataType type, int root, Comm comm,
                    CUstream_st* stream) = nullptr;       // 2.28
  Result (*comm_revoke)(Comm comm, int flags) = nullptr;  // 2.28

  int version = 0;   // 10000 · major + 100 · minor + patch
  std::string path;  // of the file that holds the functions
};

inline constexpr int kOldestVersion = 21900;

// "2.28.9".
std::string VersionText(int version);

// The names of the optional features that `library` has, and of those that it lacks: "register", "shrink", …
std::vector<absl::string_view> Features(const Library& library);
std::vector<absl::string_view> MissingFeatures(const Library& library);

// Where NCCL is looked for. The first of these that is there is taken: a copy with this `soname` that the process has
// loaded (PyTorch's, say, because two copies would take the memory of a GPU twice); the file `override_path`, unless it
// is empty; the library that the system finds under `soname`.
struct SearchPlaces {
  std::string soname = "libnccl.so.2";
  std::string override_path = {};
};

// NotFound says which file could not be loaded and why; FailedPrecondition when the library is older than
// kOldestVersion, or no NCCL. What is loaded is never unloaded.
absl::StatusOr<Library> Load(const SearchPlaces& places);

// The NCCL of this process, loaded at the first call, with TUTTI_NCCL_LIBRARY as the override. Thread-safe.
const absl::StatusOr<Library>& LoadedLibrary();

}  // namespace tutti::nccl

#endif  // TUTTI_TRANSPORTS_NCCL_LIBRARY_H_
