// Work: what a call of a process group returns to torch.
#ifndef TUTTI_TORCH_PROCESS_GROUP_WORK_H_
#define TUTTI_TORCH_PROCESS_GROUP_WORK_H_

#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <array>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "bindings/torch/process_group/call_hooks.h"
#include "tutti/call_options.h"
#include "tutti/collective.h"
#include "tutti/native_transport.h"
#include "tutti/work.h"

namespace tutti::dist {

// The calls of the core that one call of torch makes, with the tensors that they use.
struct Calls {
  // A call whose memory is ready. All calls are prepared before the first one starts: an error between two starts would
  // let go of tensors that the first call uses.
  struct Prepared {
    CollectiveSpec spec;
    const void* in = nullptr;
    void* out = nullptr;
    CallOptions options;
    // The storages in which `in` and `out` lie: a tensor may be given another one while the call is under way.
    std::array<c10::Storage, 2> storages = {};
  };
  absl::InlinedVector<Prepared, 1> prepared = {};
  std::vector<NativeCall> messages = {};    // of a GPU, which start together
  absl::InlinedVector<Work, 1> works = {};  // the calls that have been started
  // Tensors whose memory the calls use, beside the outputs; kept until the calls have ended.
  absl::InlinedVector<at::Tensor, 2> held = {};
  // The storages of the calls that have been started; kept as long.
  absl::InlinedVector<c10::Storage, 2> storages = {};
  std::vector<at::Tensor> outputs = {};
  // Takes the storages of the prepared calls, and forgets those calls.
  void KeepStorages() {
    for (Prepared& call : prepared) {
      for (c10::Storage& storage : call.storages) {
        if (storage) storages.push_back(std::move(storage));
      }
    }
    prepared.clear();
  }
  // The step that follows once all calls have ended well: copies results that arrived elsewhere to the outputs. May be
  // empty.
  std::function<void()> finish = nullptr;

  // The device on which the tensors are; the CPU where there are none.
  at::Device device() const {
    if (!outputs.empty()) return outputs[0].device();
    return held.empty() ? at::Device(at::kCPU) : held[0].device();
  }
};

// Any thread may use a ProcessGroupWork, several threads at once. wait() drives the calls; the future is completed by
// the core's thread for callbacks, which holds no lock. Dropping a ProcessGroupWork cancels nothing: the tensors are
// kept, and the outputs written, until the calls have ended.
//
// Calls on a GPU have been enqueued when the work is made. wait() lets the current stream wait for them, and the host
// only where it is given a timeout; the future is complete at once, and has torch let the streams of its callbacks
// wait. An error is thrown where it is known by then, and otherwise by isCompleted's exception() and by later calls.
// Calls that are made while the current stream is being captured become part of the CUDA graph, and so do the waits of
// streams of that capture, which alone may wait for these calls: ValueError for others.
class ProcessGroupWork : public ::c10d::Work {
 public:
  // `group` is added to error texts; `title` names the call in torch's profiler. `hooks`, if any, hear of the end.
  // `results` is given for calls on a GPU, a stream of that GPU which waits for calls whose results have to be copied.
  ProcessGroupWork(Calls calls, ::c10d::OpType type, const char* title, std::uint64_t sequence_number,
                   std::shared_ptr<const std::string> group, std::shared_ptr<CallHooks> hooks = nullptr,
                   std::optional<c10::Stream> results = std::nullopt);
  ~ProcessGroupWork() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  // The rank in the group that sent what a receive from any rank has received.
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  void blockCurrentStream() override;
  // Waits for the calls, at most `timeout` if given; throws their error, or DistBackendError after the timeout, or on
  // the main thread what Python's signal handlers raise; in the last two cases the calls go on and can be waited for
  // again.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return sequence_number_; }
#ifdef C10D_BACKEND_HAS_HOOKS
  std::uint64_t getCompletionKey() const override { return state_->key; }
#endif

  // The stream on which a future of these calls, or of these and others, is complete: `results`, or the current stream
  // where the calls are part of a CUDA graph. None for calls on the CPU.
  std::optional<c10::Stream> StreamOfFuture();

  // Names the calls of this work, for Unfinished, also once torch has dropped the work.
  std::weak_ptr<void> calls() const { return state_; }
  // Another work of the same calls, whose wait() is one of the host; null when these have ended and their results are
  // in place.
  static c10::intrusive_ptr<::c10d::Work> Unfinished(const std::weak_ptr<void>& calls);

 private:
  // The part that outlives the work while the calls go on.
  struct State {
    State(Calls the_calls, std::shared_ptr<const std::string> the_group, std::shared_ptr<CallHooks> the_hooks,
          std::optional<c10::Stream> the_results)
        : calls(std::move(the_calls)), results(the_results), group(std::move(the_group)), hooks(std::move(the_hooks)) {}
    bool done() const;
    // Ends the state once: finishes the outputs, or notes the error, and lets go of what the calls used. All calls have
    // ended.
    void End();
    // On a GPU: lets `stream` wait until the outputs have their values. FailedPrecondition where either the calls or
    // `stream` are part of the capture of a CUDA graph, but not both.
    absl::Status LetWait(const c10::Stream& stream);
    // LetWait for the calls alone, without the copies to the outputs.
    absl::Status LetWaitForCalls(const c10::Stream& stream);
    // On a GPU: enqueues the copies to the outputs, if there are any to be made: on `results`, or on the current stream
    // where the calls have become part of a CUDA graph, since `results` takes no part in a capture.
    void EnqueueFinish();

    Calls calls;
    const std::optional<c10::Stream> results;
    // The copies to the outputs, known once the constructor of the work has ended.
    std::optional<c10::Event> in_place;  // after the copies
    bool in_graph = false;               // the copies are part of a CUDA graph, and `in_place` cannot be asked
    absl::Status status_of_copies;       // why the copies could not wait for the calls
    std::exception_ptr error_of_finish;
    const std::shared_ptr<const std::string> group;
    const std::shared_ptr<CallHooks> hooks;
    const std::uint64_t key = NewKey();  // torch's name for the work, never used again
    std::mutex mutex;
    bool ended = false;
    std::exception_ptr error;
    int source = -1;
  };
  explicit ProcessGroupWork(std::shared_ptr<State> state);
  static std::uint64_t NewKey();
  // Calls `then` when all calls have ended, perhaps at once.
  static void OnDone(const std::shared_ptr<State>& state, std::function<void()> then);
  // Ends the state, and completes this work.
  void End();
  // Whether wait() and the future are matters of streams.
  bool on_stream() const { return state_->results.has_value() && !of_host_; }
  bool WaitOnStream(std::chrono::milliseconds timeout);
  void WaitOnHost(std::chrono::milliseconds timeout);
  // The two parts of WaitOnHost: until the calls have ended, and then until the outputs have been copied.
  void WaitForCalls(std::chrono::milliseconds timeout);
  void WaitForOutputs();

  const std::shared_ptr<State> state_;
  const bool of_host_ = false;
  const std::uint64_t sequence_number_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// One work for several, each of which was returned to torch, too.
c10::intrusive_ptr<::c10d::Work> WorkOfAll(std::vector<c10::intrusive_ptr<::c10d::Work>> works);

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_WORK_H_
