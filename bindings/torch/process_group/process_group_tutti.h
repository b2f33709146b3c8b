// ProcessGroupTutti: the backend "tutti" of torch.distributed, one object for each process group.
#ifndef TUTTI_TORCH_PROCESS_GROUP_PROCESS_GROUP_TUTTI_H_
#define TUTTI_TORCH_PROCESS_GROUP_PROCESS_GROUP_TUTTI_H_

#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "absl/functional/function_ref.h"
#include "bindings/torch/process_group/call_hooks.h"
#include "bindings/torch/process_group/membership.h"
#include "bindings/torch/process_group/work.h"
#include "tutti/communicator.h"

namespace tutti::dist {

inline constexpr const char* kBackendName = "tutti";

// Tensors are on the CPU or on a GPU, which is always the same one for a rank of a group, and have any strides and any
// element type; sparse COO tensors on the CPU can be reduced by allreduce.
// Calls may come from several threads, but every rank of the group makes the group's collectives in the same order.
// After the first error of a group (a rank that died, a timeout, calls that do not match) every later call of that
// group throws the error; other groups go on. A group's calls on the CPU and those on GPUs fail apart, as those of two
// groups do.
//
// Errors: ValueError names the argument and what would be right; DistBackendError names the rank, the call and the step
// that failed.
class ProcessGroupTutti : public ::c10d::Backend {
 public:
  // The facts from which a group is made. Members alone make a group, through `store`.
  struct Request {
    c10::intrusive_ptr<::c10d::Store> store;
    int rank = 0;
    int size = 1;
    std::chrono::milliseconds timeout = kBackendDefaultTimeout;
    std::string name;
    std::vector<int> global_ranks = {};  // empty: the default group
    std::string attempt = {};            // see OfNextAttempt in worlds.h
    // The store that all groups of the job share, by which they find the default group; known from Create on.
    c10::intrusive_ptr<::c10d::Store> store_of_job = {};
  };
  // Makes the group that the request describes, as this rank's next attempt. Collective over the members.
  static c10::intrusive_ptr<ProcessGroupTutti> Create(const Request& of_any_attempt);
  // The group of the ranks of `communicator`, as `request`, that of an attempt, describes it.
  ProcessGroupTutti(const Request& request, std::shared_ptr<Communicator> communicator);
  ~ProcessGroupTutti() override;

  const std::string getBackendName() const override { return kBackendName; }
  // Joins the ranks' GPUs, of which that of this rank is `device`, at once and not for the first call on them. Groups
  // of some ranks that are made later share what the default group has joined like this, and groups that are split off
  // from this one join their GPUs at once, too. Collective.
  void eagerConnectSingleDevice(at::Device device) override;
  // CopyableOptions, whose class Python can copy, as it cannot that of torch's own options.
  struct CopyableOptions : Options {
    using Options::Options;
  };
  c10::intrusive_ptr<Options> getBackendOptions() override;

  using WorkPtr = c10::intrusive_ptr<::c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  // ---- collectives (collectives.cc) ----
  WorkPtr broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const ::c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const ::c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const ::c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const ::c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const ::c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ::c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const ::c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const ::c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const ::c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const ::c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ::c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits, const ::c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const ::c10d::AllToAllOptions& options) override;
  // Ends when all ranks have called it, and all collectives of the group that this rank has begun before have ended.
  WorkPtr barrier(const ::c10d::BarrierOptions& options) override;
  // Goes through the store and leaves the group as it was when ranks are missing: rank 0 and all others that came throw
  // DistBackendError that names the missing ranks (without `wait_all_ranks` only the first).
  void monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // ---- point to point (point_to_point.cc) ----
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  // ---- the group ----
  // Between startCoalescing and endCoalescing messages on GPUs are collected, and start in endCoalescing as one call,
  // so that two ranks can send to each other; send and recv return null then. All other calls start at once.
  // endCoalescing returns one work for all of them. An error of send or recv is thrown by endCoalescing, which then
  // sends none of the collected messages: thrown earlier, it would leave torch to collect the group's later calls
  // without making them. In a process without tensors on GPUs nothing is gained, and torch is told to send batches of
  // messages one by one.
  bool supportsCoalescing() const override;
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<::c10d::Store>& store, const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;

  // On the CPU a tensor in the arena, where collectives need no copies; on a GPU one of torch's own allocator. FSDP2
  // takes the memory of its collectives from here after `set_allocate_memory_from_process_group_for_comm(True)`.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;  // NOLINT(google-runtime-int): torch's type
  at::Tensor Empty(at::IntArrayRef sizes, at::ScalarType type) const;

  // A communicator of the same ranks, whose calls never meet those of this group; for a `device` that is a GPU, one for
  // its memory, too. Collective.
  std::unique_ptr<Communicator> NewCommunicator(at::Device device);
  // See ProcessGroupWork.
  c10::Stream ResultsStream(at::Device gpu);

  // The number of collectives that this rank has begun.
  std::uint64_t getSequenceNumberForGroup() override { return sequence_number_; }
  void setSequenceNumberForGroup() override {}
  void setTimeout(std::chrono::milliseconds timeout) override;
  std::chrono::milliseconds timeout() const { return std::chrono::milliseconds(timeout_ms_); }
  ::c10d::ErrorType getError() override;
  // Ends every call of the group on all ranks, at once.
  void abort() override;
  // Leaves the group; calls under way end with an error, and later ones throw.
  void shutdown() override;
#ifdef C10D_BACKEND_HAS_HOOKS
  // torch's flight recorder hears when a call has ended, and writes its record when one has failed.
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, ::c10d::CompletionHook hook) override;
  void unregisterCompletionHook(std::int64_t id) override;
  bool supportsAbortHooks() const override { return true; }
  void registerAbortHook(std::int64_t id, ::c10d::AbortHook hook) override;
  void unregisterAbortHook(std::int64_t id) override;
#endif

 private:
  // The communicator for the memory of the host; throws after shutdown().
  std::shared_ptr<Communicator> communicator() const;
  // The communicator for the memory of `gpu`; collective over the group for the first time. Throws after shutdown().
  // Other groups share it if `shared`.
  std::shared_ptr<Communicator> CommunicatorOn(at::Device gpu, bool shared = false);
  std::shared_ptr<Communicator> NotLeft(std::shared_ptr<Communicator> communicator) const;
  CallOptions OptionsFor(std::chrono::milliseconds timeout, bool async) const;
  // Starts the prepared calls and returns their work, which is noted between startCoalescing and endCoalescing.
  WorkPtr Launched(Calls calls, ::c10d::OpType type, const char* title);
  // Starts the prepared calls and messages, which are on `gpu`, and returns the stream for their results.
  c10::Stream LaunchOnGpu(Calls& calls, at::Device gpu);
  // Between startCoalescing and endCoalescing: takes the prepared messages into batch_. Returns false at other times.
  bool AddToBatch(Calls& calls);
  // Between startCoalescing and endCoalescing: has endCoalescing throw `error`. Returns false at other times.
  bool KeepForEndOfBatch(const std::exception_ptr& error);
  // Returns what `start` does, a send or recv; null where its error waits for the end of the batch.
  WorkPtr OrErrorAtEndOfBatch(absl::FunctionRef<WorkPtr()> start);
  // The collectives of this rank that have not ended.
  std::vector<WorkPtr> Unfinished();
  // Prepare the calls of an allreduce, all_gather or reduce_scatter of one tensor in `calls`.
  void AddAllReduce(at::Tensor& tensor, const ::c10d::ReduceOp& op, const CallOptions& options, Calls& calls);
  void AddAllGather(const at::Tensor& output, const at::Tensor& input, const CallOptions& options, Calls& calls);
  void AddReduceScatter(const at::Tensor& output, const at::Tensor& input, const ::c10d::ReduceOp& op,
                        const CallOptions& options, Calls& calls);
  // Prepares an exchange of blocks of the joined tensors; `send` and `receive` hold the number of elements for each
  // rank.
  void AddAllToAllV(const at::Tensor& output, const std::vector<std::int64_t>& receive, const at::Tensor& input,
                    const std::vector<std::int64_t>& send, const CallOptions& options, Calls& calls);
  void CheckRank(const char* call, const char* argument, std::int64_t rank) const;
  Calls::Prepared Message(Collective direction, const at::Tensor& memory, Rank peer, int tag) const;

  const c10::intrusive_ptr<::c10d::Store> store_;
  const Request request_;
  std::shared_ptr<const std::string> place_;  // what error texts say of the group
  const std::shared_ptr<CallHooks> hooks_ = std::make_shared<CallHooks>();
  std::atomic<std::int64_t> timeout_ms_;
  std::atomic<std::uint64_t> sequence_number_{0};
  std::uint64_t monitored_barriers_ = 0;
  int new_communicators_ = 0;

  const std::shared_ptr<Membership> membership_;

  // A group that was split off. torch calls split once for each type of device, each time with the same store, and
  // keeps the first of the backends: all of them share one communicator.
  struct Split {
    c10::intrusive_ptr<::c10d::Store> store;  // as torch gave it to split
    Request request;
    std::weak_ptr<Communicator> communicator;
  };

  std::mutex mutex_;                               // guards the members below
  std::optional<std::vector<WorkPtr>> coalesced_;  // the works started since startCoalescing
  Calls batch_;                                    // the messages on GPUs since startCoalescing
  std::exception_ptr error_of_batch_;              // the first error of a message since startCoalescing
  std::optional<c10::Stream> results_;             // of the rank's GPU: see ProcessGroupWork
  // The collectives for which torch need not wait one by one; many of them may have ended.
  std::vector<std::weak_ptr<void>> not_awaited_;
  std::optional<at::Device> eager_gpu_;  // which eagerConnectSingleDevice has joined
  std::optional<Split> last_split_;
};

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_PROCESS_GROUP_TUTTI_H_
