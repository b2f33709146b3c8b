#include "bindings/torch/process_group/work.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/time/clock.h"
#include "bindings/torch/process_group/errors.h"
#include "bindings/torch/process_group/interpreter_exit.h"
#include "bindings/torch/process_group/interrupt.h"

namespace tutti::dist {

ProcessGroupWork::ProcessGroupWork(Calls calls, ::c10d::OpType type, const char* title, std::uint64_t sequence_number,
                                   std::shared_ptr<const std::string> group, std::shared_ptr<CallHooks> hooks)
    : ::c10d::Work(-1, type, title, calls.outputs),
      state_(std::make_shared<State>(std::move(calls), std::move(group), std::move(hooks))),
      sequence_number_(sequence_number) {}

ProcessGroupWork::ProcessGroupWork(std::shared_ptr<State> state)
    : ::c10d::Work(-1, ::c10d::OpType::UNKNOWN), state_(std::move(state)), sequence_number_(0) {}

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
  OnDone(state, [state] { state->End(); });
}

bool ProcessGroupWork::State::done() const {
  for (const tutti::Work& work : calls.works) {
    if (!work.done()) return false;
  }
  return true;
}

std::uint64_t ProcessGroupWork::NewKey() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

void ProcessGroupWork::State::End() {
  // Tensors that the calls no longer use. A tensor that is let go may take the interpreter's lock, so these tensors go
  // after the mutex, for which another thread may wait while it has the interpreter's lock.
  absl::InlinedVector<at::Tensor, 2> held;
  std::function<void()> finish;
  std::unique_lock lock(mutex);
  if (ended) return;
  absl::Status status;
  for (tutti::Work& work : calls.works) {
    status.Update(work.Wait());
    source = work.source();
  }
  error = ExceptionOf(status, *group);
  if (error == nullptr && calls.finish) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    try {
      calls.finish();
    } catch (...) {
      error = std::current_exception();
    }
  }
  finish.swap(calls.finish);
  held.swap(calls.held);
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

std::vector<at::Tensor> ProcessGroupWork::result() { return state_->calls.outputs; }

// For tensors on the CPU there is nothing to order after wait(). Python keeps its lock while it calls this function.
void ProcessGroupWork::synchronize() {
  const WithoutInterpreterLock without_lock;
  wait();
}

bool ProcessGroupWork::wait(std::chrono::milliseconds timeout) {
  if (timeout > kNoTimeout) {
    const absl::Time deadline = absl::Now() + absl::Milliseconds(timeout.count());
    for (tutti::Work& work : state_->calls.works) {
      const absl::Status status = WaitInterruptibly(work, deadline);
      if (!work.done()) std::rethrow_exception(ExceptionOf(status, *state_->group));
    }
  } else {
    for (tutti::Work& work : state_->calls.works) {
      const absl::Status status = WaitInterruptibly(work, absl::InfiniteFuture());
      if (!work.done()) std::rethrow_exception(ExceptionOf(status, *state_->group));
    }
  }
  End();
  StayIfInterpreterEnds();
  if (exception_ != nullptr) std::rethrow_exception(exception_);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> ProcessGroupWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_ != nullptr) return future_;
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  const auto complete = [self = c10::intrusive_ptr<ProcessGroupWork>::unsafe_reclaim_from_nonowning(this), future] {
    self->End();
    if (self->state_->error != nullptr) {
      future->setError(self->state_->error);
    } else {
      future->markCompleted(self->state_->calls.outputs);
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
  bool wait(std::chrono::milliseconds timeout) override {
    for (const auto& work : works_) work->wait(timeout);
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
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
