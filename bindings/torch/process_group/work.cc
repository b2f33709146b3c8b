#include "bindings/torch/process_group/work.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <utility>

#include "absl/time/clock.h"
#include "bindings/torch/process_group/errors.h"
#include "bindings/torch/process_group/gpu.h"
#include "bindings/torch/process_group/interpreter_exit.h"
#include "bindings/torch/process_group/interrupt.h"
#include "bindings/torch/process_group/timeout.h"

namespace tutti::dist {

ProcessGroupWork::ProcessGroupWork(Calls calls, ::c10d::OpType type, const char* title, std::uint64_t sequence_number,
                                   std::shared_ptr<const std::string> group, std::shared_ptr<CallHooks> hooks,
                                   std::optional<c10::Stream> results)
    : ::c10d::Work(-1, type, title, calls.outputs),
      state_(std::make_shared<State>(std::move(calls), std::move(group), std::move(hooks), results)),
      sequence_number_(sequence_number) {
  if (on_stream()) state_->EnqueueFinish();
}

ProcessGroupWork::ProcessGroupWork(std::shared_ptr<State> state)
    : ::c10d::Work(-1, ::c10d::OpType::UNKNOWN), state_(std::move(state)), of_host_(true), sequence_number_(0) {}

c10::intrusive_ptr<::c10d::Work> ProcessGroupWork::Unfinished(const std::weak_ptr<void>& calls) {
  const auto state = std::static_pointer_cast<State>(calls.lock());
  if (state == nullptr) return nullptr;
  // Another thread has the mutex while it copies the results to the outputs.
  const std::unique_lock lock(state->mutex, std::try_to_lock);
  if (lock.owns_lock() && state->ended) return nullptr;
  return c10::intrusive_ptr<ProcessGroupWork>::unsafe_steal_from_new(new ProcessGroupWork(state));
}

ProcessGroupWork::~ProcessGroupWork() {
  const std::shared_ptr<State>& state = state_;
  {
    const std::lock_guard lock(state->mutex);
    if (state->ended) return;
  }
  try {
    OnDone(state, [state] { state->End(); });
  } catch (const std::system_error&) {  // no thread can be started for callbacks
    state->End();
  }
}

bool ProcessGroupWork::State::done() const {
  for (const tutti::Work& work : calls.works) {
    if (!work.done()) return false;
  }
  return !in_place.has_value() || in_graph || in_place->query();
}

absl::Status ProcessGroupWork::State::LetWaitForCalls(const c10::Stream& stream) {
  absl::Status status;
  for (tutti::Work& work : calls.works) status.Update(work.WaitOnStream(stream.native_handle()));
  return status;
}

absl::Status ProcessGroupWork::State::LetWait(const c10::Stream& stream) {
  absl::Status status = LetWaitForCalls(stream);
  status.Update(status_of_copies);
  if (status.ok() && in_place.has_value()) in_place->block(stream);
  return status;
}

void ProcessGroupWork::State::EnqueueFinish() {
  if (!calls.finish) return;
  // The calls are under way and use the tensors of this state, so no exception may end it.
  try {
    c10::Stream stream = *results;
    status_of_copies = LetWaitForCalls(stream);
    if (absl::IsFailedPrecondition(status_of_copies)) {
      stream = CurrentStream(results->device());
      status_of_copies = LetWaitForCalls(stream);
      in_graph = status_of_copies.ok();
    }
    if (!status_of_copies.ok()) return;
    for (const at::Tensor& tensor : calls.held) UseOnStream(tensor, stream);
    for (const at::Tensor& tensor : calls.outputs) UseOnStream(tensor, stream);
    const at::AutoDispatchBelowADInplaceOrView guard;
    const c10::StreamGuard on_stream(stream);
    calls.finish();
    in_place.emplace(stream.device_type());
    in_place->record(stream);
  } catch (...) {
    error_of_finish = std::current_exception();
  }
}

std::optional<c10::Stream> ProcessGroupWork::StreamOfFuture() {
  if (!on_stream()) return std::nullopt;
  const bool in_graph = absl::IsFailedPrecondition(state_->LetWaitForCalls(*state_->results));
  return in_graph ? CurrentStream(state_->results->device()) : *state_->results;
}

std::uint64_t ProcessGroupWork::NewKey() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

void ProcessGroupWork::State::End() {
  // Tensors that the calls no longer use. A tensor that is let go may take the interpreter's lock, so these tensors go
  // after the mutex, for which another thread may wait while it has the interpreter's lock.
  absl::InlinedVector<at::Tensor, 2> held;
  absl::InlinedVector<c10::Storage, 2> storages;
  std::function<void()> finish;
  std::unique_lock lock(mutex);
  if (ended) return;
  absl::Status status;
  for (tutti::Work& work : calls.works) {
    status.Update(work.Wait());
    source = work.source();
  }
  status.Update(status_of_copies);
  error = ExceptionOf(status, *group);
  if (error == nullptr) error = error_of_finish;
  if (error == nullptr && calls.finish && !results.has_value()) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    try {
      calls.finish();
    } catch (...) {
      error = std::current_exception();
    }
  }
  finish.swap(calls.finish);
  held.swap(calls.held);
  storages.swap(calls.storages);
  ended = true;
  lock.unlock();
  if (hooks != nullptr) hooks->Ended(key, status);
}

void ProcessGroupWork::OnDone(const std::shared_ptr<State>& state, std::function<void()> then) {
  if (state->calls.works.size() == 1) {
    state->calls.works[0].OnDone([then = std::move(then)](const absl::Status&) {
      const Callback callback;
      then();
    });
    return;
  }
  // The number of calls that have not ended, and one more, for this function: it counts itself off once every call has
  // its callback.
  const auto left = std::make_shared<std::atomic<std::size_t>>(state->calls.works.size() + 1);
  const auto one_less = [left, then = std::move(then)] {
    const Callback callback;
    if (left->fetch_sub(1) == 1) then();
  };
  for (tutti::Work& work : state->calls.works) {
    work.OnDone([one_less](const absl::Status&) { one_less(); });
  }
  one_less();
}

void ProcessGroupWork::End() {
  state_->End();
  const std::unique_lock lock(mutex_);
  if (completed_) return;
  completed_ = true;
  exception_ = state_->error;
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
  cv_.notify_all();
}

bool ProcessGroupWork::isCompleted() {
  if (!state_->done()) return false;
  End();
  return true;
}

bool ProcessGroupWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && exception_ == nullptr;
}

std::exception_ptr ProcessGroupWork::exception() const {
  const std::lock_guard lock(mutex_);
  return exception_;
}

int ProcessGroupWork::sourceRank() const {
  const std::lock_guard lock(state_->mutex);
  return state_->source;
}

// The waits of a barrier for calls on a GPU have no results: a future of the host could not order them.
std::vector<at::Tensor> ProcessGroupWork::result() {
  return of_host_ && state_->results.has_value() ? std::vector<at::Tensor>() : state_->calls.outputs;
}

// Nothing has to be ordered after wait(). Python keeps its lock while it calls this function.
void ProcessGroupWork::synchronize() {
  const WithoutInterpreterLock without_lock;
  wait();
}

// The stream waits for the calls themselves: their future, for which torch's own function lets the stream wait, is
// complete at once where the calls are on a GPU.
void ProcessGroupWork::blockCurrentStream() {
  if (on_stream()) return synchronize();
  Work::blockCurrentStream();
}

bool ProcessGroupWork::wait(std::chrono::milliseconds timeout) {
  if (on_stream()) return WaitOnStream(timeout);
  WaitOnHost(timeout);
  End();
  StayIfInterpreterEnds();
  if (exception_ != nullptr) std::rethrow_exception(exception_);
  return true;
}

bool ProcessGroupWork::WaitOnStream(std::chrono::milliseconds timeout) {
  // First, because LetWait waits without a limit until the calls are on their streams.
  if (timeout > kNoTimeout) WaitForCalls(timeout);
  const absl::Status status = state_->LetWait(CurrentStream(state_->results->device()));
  // The stream is in a capture of which the calls are no part, or the other way round; the calls themselves go on.
  if (absl::IsFailedPrecondition(status)) {
    StayIfInterpreterEnds();
    std::rethrow_exception(ExceptionOf(status, *state_->group));
  }
  if (timeout > kNoTimeout) WaitForOutputs();
  if (!status.ok() || timeout > kNoTimeout || state_->error_of_finish != nullptr) End();
  StayIfInterpreterEnds();
  const std::lock_guard lock(mutex_);
  if (exception_ != nullptr) std::rethrow_exception(exception_);
  if (!status.ok()) std::rethrow_exception(ExceptionOf(status, *state_->group));
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
  return true;
}

void ProcessGroupWork::WaitOnHost(std::chrono::milliseconds timeout) {
  WaitForCalls(timeout);
  WaitForOutputs();
}

void ProcessGroupWork::WaitForCalls(std::chrono::milliseconds timeout) {
  const WaitClock::time_point end =
      timeout > kNoTimeout ? Later(WaitClock::now(), timeout) : WaitClock::time_point::max();
  for (tutti::Work& work : state_->calls.works) {
    const absl::Status status = WaitInterruptibly(work, end);
    if (!work.done()) {
      std::rethrow_exception(ExceptionOf(status, *state_->group, "the timeout of the wait has passed: "));
    }
  }
}

void ProcessGroupWork::WaitForOutputs() {
  if (state_->in_place.has_value() && !state_->in_graph) state_->in_place->synchronize();
}

namespace {

// The future of `work`, which is complete at once: torch lets the streams of those that use its value wait for
// `stream`, and `stream` waits for the work.
c10::intrusive_ptr<c10::ivalue::Future> FutureOnStream(const c10::Stream& stream, ::c10d::Work& work) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                         std::vector<at::Device>{stream.device()});
  const c10::StreamGuard on_stream(stream);
  try {
    work.wait();
    future->markCompleted(work.result());
  } catch (...) {
    future->setError(std::current_exception());
  }
  return future;
}

}  // namespace

c10::intrusive_ptr<c10::ivalue::Future> ProcessGroupWork::getFuture() {
  // Python keeps its lock while it calls this function, and gets it back once future_mutex_ is free: another thread may
  // wait for that mutex.
  const WithoutInterpreterLock without_lock;
  const std::lock_guard lock(future_mutex_);
  if (future_ != nullptr) return future_;
  if (const std::optional<c10::Stream> stream = StreamOfFuture(); stream.has_value()) {
    return future_ = FutureOnStream(*stream, *this);
  }
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  const auto complete = [self = c10::intrusive_ptr<ProcessGroupWork>::unsafe_reclaim_from_nonowning(this), future] {
    self->End();
    if (self->state_->error != nullptr) {
      future->setError(self->state_->error);
    } else {
      future->markCompleted(self->result());
    }
  };
  for (tutti::Work& work : state_->calls.works) work.AwaitElsewhere();
  OnDone(state_, complete);
  future_ = std::move(future);  // not before OnDone, which throws where no thread can be started
  return future_;
}

namespace {

class CoalescedWork : public ::c10d::Work {
 public:
  explicit CoalescedWork(std::vector<c10::intrusive_ptr<::c10d::Work>> works)
      : ::c10d::Work(-1, ::c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
  }
#ifdef C10D_BACKEND_HAS_HOOKS
  // torch's recorder knows one call: the last one, which is the barrier where a barrier waits for earlier calls.
  std::uint64_t getCompletionKey() const override { return works_.empty() ? 0 : works_.back()->getCompletionKey(); }
#endif
  bool isSuccess() const override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    for (const auto& work : works_) {
      if (std::exception_ptr error = work->exception(); error != nullptr) return error;
    }
    return nullptr;
  }
  std::vector<at::Tensor> result() override {
    std::vector<at::Tensor> all;
    for (const auto& work : works_) {
      const std::vector<at::Tensor> some = work->result();
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  void synchronize() override {
    const WithoutInterpreterLock without_lock;
    wait(kNoTimeout);
  }
  void blockCurrentStream() override {
    for (const auto& work : works_) work->blockCurrentStream();
  }
  bool wait(std::chrono::milliseconds timeout) override {
    const WaitClock::time_point deadline = Later(WaitClock::now(), timeout);
    for (const auto& work : works_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - WaitClock::now());
      // A work that has ended has no use for the time; another one shall time out, and not wait without a limit.
      work->wait(timeout > kNoTimeout ? std::max(left, std::chrono::milliseconds(1)) : timeout);
    }
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const WithoutInterpreterLock without_lock;
    for (const auto& work : works_) {
      auto* const call = dynamic_cast<ProcessGroupWork*>(work.get());
      const std::optional<c10::Stream> stream = call == nullptr ? std::nullopt : call->StreamOfFuture();
      if (stream.has_value()) return FutureOnStream(*stream, *this);
    }
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(
        c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
    for (const auto& work : works_) futures.push_back(work->getFuture());
    auto all = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    c10::collectAll(futures)->addCallback([all, works = works_](c10::ivalue::Future& ended) {
      if (ended.hasError()) return all->setError(ended.exception_ptr());
      std::vector<at::Tensor> tensors;
      for (const auto& work : works) {
        const std::vector<at::Tensor> some = work->result();
        tensors.insert(tensors.end(), some.begin(), some.end());
      }
      all->markCompleted(tensors);
    });
    return all;
  }

 private:
  const std::vector<c10::intrusive_ptr<::c10d::Work>> works_;
};

}  // namespace

c10::intrusive_ptr<::c10d::Work> WorkOfAll(std::vector<c10::intrusive_ptr<::c10d::Work>> works) {
  return c10::make_intrusive<CoalescedWork>(std::move(works));
}

}  // namespace tutti::dist
