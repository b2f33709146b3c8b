#include "bindings/torch/process_group/process_group_tutti.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bindings/torch/process_group/errors.h"
#include "bindings/torch/process_group/gpu.h"
#include "bindings/torch/process_group/interpreter_exit.h"
#include "bindings/torch/process_group/interrupt.h"
#include "bindings/torch/process_group/memory.h"
#include "bindings/torch/process_group/timeout.h"
#include "bindings/torch/process_group/worlds.h"
#include "tutti/torch/errors.h"

namespace tutti::dist {
namespace {

// The group's name and ranks, for error texts; empty for the default group, whose ranks are those of the job.
std::string PlaceOf(const ProcessGroupTutti::Request& request) {
  if (request.global_ranks.empty()) return "";
  return absl::StrCat(" [in the process group \"", request.name, "\" of the global ranks ",
                      absl::StrJoin(request.global_ranks, ", "), ", counted from 0 in this order]");
}

}  // namespace

c10::intrusive_ptr<ProcessGroupTutti> ProcessGroupTutti::Create(const Request& of_any_attempt) {
  Request request = of_any_attempt;
  request.store_of_job = StoreOfJob(request.store);
  request = nn::ValueOrThrow(OfNextAttempt(request, AttemptOfDefaultGroup(request)));
  absl::StatusOr<std::shared_ptr<Communicator>> joined = JoinGroup(request);
  if (!joined.ok()) {
    nn::ThrowIfError(absl::Status(joined.status().code(), absl::StrCat(joined.status().message(), PlaceOf(request))));
  }
  return c10::make_intrusive<ProcessGroupTutti>(request, *std::move(joined));
}

ProcessGroupTutti::ProcessGroupTutti(const Request& request, std::shared_ptr<Communicator> communicator)
    : Backend(request.rank, request.size),
      store_(request.store),
      request_(request),
      place_(std::make_shared<const std::string>(PlaceOf(request))),
      timeout_ms_(request.timeout.count()),
      membership_(std::make_shared<Membership>(std::move(communicator))) {
  init();
  Track(this, membership_);
}

ProcessGroupTutti::~ProcessGroupTutti() {
  Untrack(this);
  const WithoutInterpreterLock without_lock;
  membership_->End();
}

c10::intrusive_ptr<::c10d::Backend::Options> ProcessGroupTutti::getBackendOptions() {
  auto options = c10::make_intrusive<CopyableOptions>(kBackendName, std::chrono::milliseconds(timeout_ms_.load()));
  options->group_name = request_.name;
  options->global_ranks_in_group.assign(request_.global_ranks.begin(), request_.global_ranks.end());
  return options;
}

std::shared_ptr<Communicator> ProcessGroupTutti::NotLeft(std::shared_ptr<Communicator> communicator) const {
  TORCH_CHECK_WITH(DistBackendError, communicator != nullptr,
                   "tutti: this process group was destroyed: call init_process_group or new_group again", *place_);
  return communicator;
}

std::shared_ptr<Communicator> ProcessGroupTutti::communicator() const {
  StayIfInterpreterEnds();
  return NotLeft(membership_->OnHost());
}

std::shared_ptr<Communicator> ProcessGroupTutti::CommunicatorOn(at::Device gpu, bool shared) {
  StayIfInterpreterEnds();
  absl::StatusOr<std::shared_ptr<Communicator>> joined =
      membership_->OnGpu(gpu.index(), [&] { return JoinGroupOnGpu(request_, gpu.index(), shared); });
  if (!joined.ok()) std::rethrow_exception(ExceptionOf(joined.status(), *place_));
  return NotLeft(*std::move(joined));
}

bool ProcessGroupTutti::supportsCoalescing() const { return TorchWorksOnGpus(); }

void ProcessGroupTutti::eagerConnectSingleDevice(at::Device device) {
  if (!device.is_cuda()) return;
  const WithoutInterpreterLock without_lock;
  CommunicatorOn(device, /*shared=*/true);
  const std::lock_guard lock(mutex_);
  eager_gpu_ = device;
}

CallOptions ProcessGroupTutti::OptionsFor(std::chrono::milliseconds timeout, bool async) const {
  const std::int64_t milliseconds = timeout.count() > 0 ? timeout.count() : timeout_ms_.load();
  return {.timeout = absl::Milliseconds(milliseconds), .caller_drives = !async};
}

c10::Stream ProcessGroupTutti::ResultsStream(at::Device gpu) {
  const std::lock_guard lock(mutex_);
  // Copies of results must neither wait for what the program enqueues, nor become part of what it captures.
  if (!results_.has_value() || *results_ == CurrentStream(gpu)) results_ = PoolStream(gpu);
  return *results_;
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::Launched(Calls calls, ::c10d::OpType type, const char* title) {
  const at::Device device = calls.device();
  const bool is_message = !calls.messages.empty() || type == ::c10d::OpType::SEND || type == ::c10d::OpType::RECV ||
                          type == ::c10d::OpType::RECVANYSOURCE;
  if (device.is_cuda() && is_message && AddToBatch(calls)) return nullptr;
  if (!is_message && !calls.prepared.empty()) ++sequence_number_;
  std::optional<c10::Stream> results;
  if (device.is_cuda()) {
    results = LaunchOnGpu(calls, device);
  } else {
    const std::shared_ptr<Communicator> communicator = this->communicator();
    calls.works.reserve(calls.prepared.size());
    for (const Calls::Prepared& call : calls.prepared) {
      calls.works.push_back(communicator->Call(call.spec, call.in, call.out, call.options));
    }
  }
  calls.KeepStorages();
  auto work = c10::make_intrusive<ProcessGroupWork>(std::move(calls), type, title, sequence_number_.load(), place_,
                                                    hooks_, results);
  const std::lock_guard lock(mutex_);
  if (coalesced_.has_value()) coalesced_->push_back(work);
  if (!is_message && type != ::c10d::OpType::BARRIER) {
    if (not_awaited_.size() == not_awaited_.capacity()) {
      std::erase_if(not_awaited_, [](const auto& begun) { return begun.expired(); });
    }
    not_awaited_.push_back(work->calls());
  }
  return work;
}

c10::Stream ProcessGroupTutti::LaunchOnGpu(Calls& calls, at::Device gpu) {
  const std::shared_ptr<Communicator> communicator = CommunicatorOn(gpu);
  const c10::Stream results = ResultsStream(gpu);
  for (Calls::Prepared& call : calls.prepared) {
    if (call.in != nullptr || call.out != nullptr) continue;
    // 0 elements: by some memory the core knows a call on a GPU.
    calls.held.push_back(at::empty({1}, at::TensorOptions(gpu).dtype(at::kByte)));
    void* const memory = calls.held.back().mutable_data_ptr();
    if (call.spec.collective == Collective::kSend) {
      call.in = memory;
    } else {
      call.out = memory;
    }
  }
  // From here on nothing may be thrown: it would let go of tensors that calls use which have been started.
  const auto on_stream = [stream = CurrentStream(gpu).native_handle()](CallOptions options) {
    options.stream = stream;
    options.caller_drives = false;
    return options;
  };
  calls.works.reserve(calls.prepared.size() + 1);
  for (const Calls::Prepared& call : calls.prepared) {
    calls.works.push_back(communicator->Call(call.spec, call.in, call.out, on_stream(call.options)));
  }
  if (!calls.messages.empty()) {
    calls.works.push_back(communicator->SendRecv(calls.messages, on_stream(OptionsFor(::c10d::kUnsetTimeout, true))));
  }
  return results;
}

bool ProcessGroupTutti::AddToBatch(Calls& calls) {
  const std::lock_guard lock(mutex_);
  if (!coalesced_.has_value()) return false;
  for (const auto& [spec, in, out, options, storages] : calls.prepared) {
    TORCH_CHECK_VALUE(options.tag == 0, "tutti: a message on a GPU has the tag ", options.tag,
                      "; messages of NCCL have none: 0 would be right");
    TORCH_CHECK_NOT_IMPLEMENTED(spec.root != kAnySource, "tutti: recv on a GPU needs the rank that sends");
    if (spec.count == 0) continue;  // neither rank launches it
    const bool sends = spec.collective == Collective::kSend;
    batch_.messages.push_back({.collective = spec.collective,
                               .dtype = spec.dtype,
                               .count = spec.count,
                               .root = spec.root,
                               .src = sends ? in : nullptr,
                               .dst = sends ? nullptr : out});
  }
  batch_.held.insert(batch_.held.end(), calls.held.begin(), calls.held.end());
  calls.KeepStorages();
  batch_.storages.insert(batch_.storages.end(), calls.storages.begin(), calls.storages.end());
  batch_.outputs.insert(batch_.outputs.end(), calls.outputs.begin(), calls.outputs.end());
  if (calls.finish) {
    batch_.finish = [earlier = std::move(batch_.finish), own = std::move(calls.finish)] {
      if (earlier) earlier();
      own();
    };
  }
  return true;
}

std::vector<ProcessGroupTutti::WorkPtr> ProcessGroupTutti::Unfinished() {
  std::vector<WorkPtr> works;
  const std::lock_guard lock(mutex_);
  // A collective stays in the list until it has ended, and not only until a barrier has seen it: if nobody waits for
  // that barrier, the next barrier must still wait for the collective.
  std::erase_if(not_awaited_, [&](const std::weak_ptr<void>& calls) {
    WorkPtr work = ProcessGroupWork::Unfinished(calls);
    if (work == nullptr) return true;
    works.push_back(std::move(work));
    return false;
  });
  return works;
}

void ProcessGroupTutti::startCoalescing() {
  const std::lock_guard lock(mutex_);
  coalesced_.emplace();  // anew where an error between the two calls kept torch from calling endCoalescing
  batch_ = {};
  error_of_batch_ = nullptr;
}

bool ProcessGroupTutti::KeepForEndOfBatch(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (!coalesced_.has_value()) return false;
  if (error_of_batch_ == nullptr) error_of_batch_ = error;
  return true;
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::endCoalescing() {
  std::vector<WorkPtr> works;
  Calls batch;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK_VALUE(coalesced_.has_value(), "tutti: endCoalescing without startCoalescing");
    works = *std::move(coalesced_);
    coalesced_.reset();
    batch = std::exchange(batch_, {});
    error = std::exchange(error_of_batch_, nullptr);
  }
  if (error != nullptr) std::rethrow_exception(error);
  if (!batch.messages.empty()) {
    works.push_back(Launched(std::move(batch), ::c10d::OpType::COALESCED, "tutti:send_recv"));
  }
  return WorkOfAll(std::move(works));
}

c10::intrusive_ptr<::c10d::Backend> ProcessGroupTutti::split(const c10::intrusive_ptr<::c10d::Store>& store,
                                                             const std::vector<int>& ranks,
                                                             const c10::intrusive_ptr<Options>& options) {
  const auto mine = std::find(ranks.begin(), ranks.end(), getRank());
  if (mine == ranks.end()) return nullptr;
  Request request = request_;
  request.store = store;
  request.rank = static_cast<int>(mine - ranks.begin());
  request.size = static_cast<int>(ranks.size());
  request.name = options->group_name;
  request.timeout = nn::ValueOrThrow(TimeoutOfGroup(options->timeout));
  request.global_ranks.clear();
  for (const int rank : ranks) {
    CheckRank("split", "ranks", rank);
    request.global_ranks.push_back(request_.global_ranks.empty() ? rank : request_.global_ranks[rank]);
  }
  std::optional<at::Device> gpu;
  {
    const std::lock_guard lock(mutex_);
    if (last_split_.has_value() && last_split_->store == store &&
        last_split_->request.global_ranks == request.global_ranks) {
      if (std::shared_ptr<Communicator> known = last_split_->communicator.lock(); known != nullptr) {
        return c10::make_intrusive<ProcessGroupTutti>(last_split_->request, std::move(known));
      }
    }
    gpu = eager_gpu_;
  }
  request = nn::ValueOrThrow(OfNextAttempt(request, request_.attempt));
  std::shared_ptr<Communicator> communicator =
      nn::ValueOrThrow(this->communicator()->Group(ranks, NameOfAttempt(request)));
  auto group = c10::make_intrusive<ProcessGroupTutti>(request, communicator);
  if (gpu.has_value()) group->eagerConnectSingleDevice(*gpu);
  const std::lock_guard lock(mutex_);
  last_split_ = Split{.store = store, .request = request, .communicator = communicator};
  return group;
}

at::Tensor ProcessGroupTutti::Empty(at::IntArrayRef sizes, at::ScalarType type) const {
  return EmptyInArena(*communicator(), sizes, type);
}

at::Tensor ProcessGroupTutti::allocateTensor(long size, at::TensorOptions options) {  // NOLINT(google-runtime-int)
  if (options.device().is_cuda()) return at::empty({size}, options);
  TORCH_CHECK_VALUE(options.device().is_cpu(), "tutti: allocate_tensor: device is ", options.device(),
                    "; Tutti works on the CPU and on GPUs (cuda)");
  return Empty({size}, c10::typeMetaToScalarType(options.dtype()));
}

std::unique_ptr<Communicator> ProcessGroupTutti::NewCommunicator(at::Device device) {
  std::vector<Rank> all(getSize());
  std::iota(all.begin(), all.end(), 0);
  const std::shared_ptr<Communicator> all_ranks = device.is_cuda() ? CommunicatorOn(device) : communicator();
  return nn::ValueOrThrow(all_ranks->Group(all, absl::StrCat("exchange ", new_communicators_++)));
}

void ProcessGroupTutti::setTimeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK_VALUE(timeout.count() > 0, "tutti: setTimeout: ", timeout.count(), " ms; a timeout is positive");
  timeout_ms_ = timeout.count();
}

::c10d::ErrorType ProcessGroupTutti::getError() {
  const absl::Status status = membership_->status();
  if (status.ok()) return ::c10d::ErrorType::SUCCESS;
  if (absl::IsDeadlineExceeded(status)) return ::c10d::ErrorType::TIMEOUT;
  return absl::IsUnavailable(status) ? ::c10d::ErrorType::REMOTE_ERROR : ::c10d::ErrorType::COMM_ERROR;
}

#ifdef C10D_BACKEND_HAS_HOOKS
void ProcessGroupTutti::registerCompletionHook(std::int64_t id, ::c10d::CompletionHook hook) {
  hooks_->Add(id, CallHooks::Completion([hook = std::move(hook)](std::uint64_t key) {
                // The core does not measure how long a single call takes.
                hook({.completionKey = key, .duration_ms = std::nullopt});
              }));
}

void ProcessGroupTutti::unregisterCompletionHook(std::int64_t id) { hooks_->RemoveCompletion(id); }

void ProcessGroupTutti::registerAbortHook(std::int64_t id, ::c10d::AbortHook hook) {
  hooks_->Add(id, CallHooks::Abort(std::move(hook)));
}

void ProcessGroupTutti::unregisterAbortHook(std::int64_t id) { hooks_->RemoveAbort(id); }
#endif

void ProcessGroupTutti::abort() { membership_->Abort("has aborted the process group"); }

void ProcessGroupTutti::shutdown() { membership_->End(); }

void ProcessGroupTutti::CheckRank(const char* call, const char* argument, std::int64_t rank) const {
  TORCH_CHECK_VALUE(rank >= 0 && rank < getSize(), "tutti: ", call, ": ", argument, " is rank ", rank,
                    ", and the group has the ranks 0 to ", getSize() - 1);
}

}  // namespace tutti::dist
