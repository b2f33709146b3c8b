// Checks that several ranks make together on GPUs: what a check is, and what it is given. The same checks run in
// processes that share a real GPU (rank_processes.cc), and, so that the checks themselves are tested, in threads over
// the fakes of CUDA and NCCL (rank_threads.cc).
#ifndef TESTS_GPU_RANK_CHECK_H_
#define TESTS_GPU_RANK_CHECK_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "memory/cuda_runtime.h"
#include "tutti/bootstrap.h"
#include "tutti/communicator.h"
#include "tutti/native_transport.h"

namespace tutti::gpu {

// How long a communicator of a check waits for its peers, unless the check says otherwise.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// Between the first two calls what is enqueued on `stream` is recorded into a CUDA graph, which can then be launched
// any number of times, until it is destroyed.
struct StreamCapture {
  CudaError (*begin)(CUstream_st* stream) = nullptr;
  CudaError (*end)(CUstream_st* stream, void** graph) = nullptr;
  CudaError (*launch)(void* graph, CUstream_st* stream) = nullptr;
  void (*destroy)(void* graph) = nullptr;
};

// The GPU of a rank, real or fake, and what serves it.
struct RankDevice {
  const CudaRuntime* cuda = nullptr;
  const NativeTransportMaker* native = nullptr;
  StreamCapture capture;
  int index = 0;
  bool is_fake = false;  // a check then takes small sizes: the fakes compute in host memory
};

// One rank in a check.
struct CheckedRank {
  Communicator& comm;
  RankDevice device;
  // Ends this rank at once: kills its process, or, of a thread, returns what the check must then return, so that the
  // rank leaves with its calls under way.
  std::function<absl::Status()> die;
  // Tells what the check has covered; printed for rank 0.
  std::function<void(const std::string& text)> note;

  // Waits until every rank has come here, without a call of the communicator: what a rank does next may end that. Once
  // in a check.
  absl::Status Meet() {
    return ExchangeBlobs(comm.store(), "meeting", rank(), size(), "", absl::Now() + kPatience).status();
  }

  const CudaRuntime& cuda() const { return *device.cuda; }
  Rank rank() const { return comm.rank(); }
  int size() const { return comm.size(); }
};

struct RankCheck {
  std::string name;
  absl::string_view summary = {};
  std::vector<int> sizes;                                   // numbers of ranks with which the check runs
  absl::Duration timeout;                                   // of one run on a GPU, from the start of its processes
  bool last_rank_dies = false;                              // the rank of the highest number reports nothing
  bool also_staged = false;                                 // runs with messages through the host, too
  bool is_staged = false;                                   // this is that check
  std::function<absl::Status(CheckedRank&)> run = nullptr;  // on every rank; OK, or what is wrong
};

// Every check, in the order in which a suite runs them: what later checks build on comes first. Those that are
// also_staged come again at the end, as "staged_NAME", for several ranks.
std::vector<RankCheck> AllRankChecks();

// The checks of each file.
std::vector<RankCheck> NativeChecks();
std::vector<RankCheck> CollectiveChecks();
std::vector<RankCheck> MessageChecks();
std::vector<RankCheck> StrategyChecks();
std::vector<RankCheck> TrainingChecks();
std::vector<RankCheck> StreamChecks();
std::vector<RankCheck> GroupChecks();
std::vector<RankCheck> FailureChecks();

// Runs `check` with `size` ranks, which are threads. An error names the rank.
absl::Status RunOnFakes(const RankCheck& check, int size);
// The same with processes, all of which use the first GPU of this machine. Ranks that have not ended after the check's
// timeout are killed. This process must have started no threads, and must not have used CUDA.
absl::Status RunOnGpu(const RankCheck& check, int size, const StreamCapture& capture);
// OK when RunOnGpu can be used; otherwise the reason. Asks in a process of its own.
absl::Status FindGpu();

}  // namespace tutti::gpu

#endif  // TESTS_GPU_RANK_CHECK_H_
