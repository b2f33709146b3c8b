#include "comm/communicator_impl.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

// What idle operations of one communicator may hold of the arena; less where that is small.
constexpr std::int64_t kMostIdleBytes = std::int64_t{256} << 20;

absl::Status CheckTimeout(const CallOptions& options, Rank rank) {
  if (options.timeout >= absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("call of rank ", rank, ": timeout ",
                                                 absl::FormatDuration(options.timeout),
                                                 " must be positive, or 0 for the communicator's"));
}

// Completes `spec.in_place` from where the caller's memory lies, or says what is wrong with it.
absl::Status PlaceBuffers(CollectiveSpec& spec, const void* in, void* out, Rank rank, int size) {
  const std::int64_t in_bytes = InputCount(spec, rank, size) * SizeOf(spec.dtype);
  const std::int64_t out_bytes = OutputCount(spec, rank, size) * SizeOf(spec.dtype);
  const auto missing = [&](absl::string_view which, std::int64_t bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(Name(spec.collective), " of rank ", rank, ": ", which, " is null but holds ", bytes, " bytes"));
  };
  if (in_bytes > 0 && in == nullptr) return missing("in", in_bytes);
  if (out_bytes > 0 && out == nullptr) return missing("out", out_bytes);
  if (in_bytes == 0 || out_bytes == 0) return absl::OkStatus();
  const auto* const in_begin = static_cast<const std::byte*>(in);
  const auto* const out_begin = static_cast<const std::byte*>(out);
  const bool exchanges = spec.collective == Collective::kAllToAll || spec.collective == Collective::kAllToAllV;
  if (!exchanges) {
    if (in_bytes <= out_bytes) {
      spec.in_place = in_begin == out_begin + (in_bytes < out_bytes ? rank * in_bytes : 0);
    } else {
      spec.in_place = out_begin == in_begin + rank * out_bytes;
    }
  }
  if (!spec.in_place && in_begin < out_begin + out_bytes && out_begin < in_begin + in_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(Name(spec.collective), " of rank ", rank,
                                                   ": in and out overlap, but not as the in-place form wants them"));
  }
  return absl::OkStatus();
}

}  // namespace

BoundPlan::BoundPlan() = default;
BoundPlan::~BoundPlan() = default;
BoundPlan::BoundPlan(BoundPlan&&) noexcept = default;
BoundPlan& BoundPlan::operator=(BoundPlan&&) noexcept = default;
BoundPlan::BoundPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Work BoundPlan::Start(const CallOptions& options) { return impl_->Start(options); }
const Plan& BoundPlan::plan() const { return impl_->plan(); }

Work BoundPlan::Impl::Start(const CallOptions& options) {
  if (absl::Status status = CheckTimeout(options, plan().rank); !status.ok()) return Work(status);
  if (call_->busy()) {
    return Work(absl::FailedPreconditionError(
        absl::StrCat("rank ", plan().rank, ": ", plan().name, " was started again before its last run had ended")));
  }
  call_->AddReference();
  return Work(call_, call_->Submit(options));
}

Communicator::Impl::Impl(std::shared_ptr<Runtime> its_runtime, std::unique_ptr<Channel> its_channel,
                         std::shared_ptr<Store> its_store)
    : runtime(std::move(its_runtime)),
      channel(std::move(its_channel)),
      store(std::move(its_store)),
      plan_options(PlanOptionsOf(*runtime, *channel)),
      cache_(std::min(kMostIdleBytes, runtime->arena->bytes() / 8)) {
  runtime->Register(&cache_);
}

Communicator::Impl::~Impl() {
  runtime->engine->Close(*channel);
  runtime->Unregister(&cache_);
}

Work Communicator::Impl::Call(const CollectiveSpec& requested, const void* in, void* out, const CallOptions& options) {
  if (in_forked_child()) return Work(NotInForkedChild(channel->rank()));
  CollectiveSpec spec = requested;
  const Rank rank = channel->rank();
  const int size = channel->size();
  // Validated first: the sizes below are meaningless otherwise.
  if (absl::Status status = Validate(spec, rank, size); !status.ok()) return Work(status);
  if (absl::Status status = CheckTimeout(options, rank); !status.ok()) return Work(status);
  if (absl::Status status = PlaceBuffers(spec, in, out, rank, size); !status.ok()) return Work(status);
  absl::StatusOr<tutti::Call*> taken = IdleCallFor(spec, options.schedule);
  if (!taken.ok()) return Work(taken.status());
  tutti::Call& call = **taken;
  // In place there is one memory, as long as the longer of input and output.
  if (spec.in_place && InputCount(spec, rank, size) > OutputCount(spec, rank, size)) out = const_cast<void*>(in);
  if (absl::Status status = call.SetBuffers(in, out, nullptr); !status.ok()) {
    if (!call.program().uses_lane) {
      call.Release();
      return Work(status);
    }
    // The peers would wait for this rank: it makes the call, and all hear that it cannot take part.
    call.RefuseNextRun(std::move(status));
  }
  return Work(&call, call.Submit(options));
}

absl::StatusOr<tutti::Call*> Communicator::Impl::IdleCallFor(const CollectiveSpec& spec, const Schedule* schedule) {
  const CallKey key{spec, schedule};
  std::shared_ptr<CallPool> pool = cache_.Find(key);
  if (pool == nullptr) {
    absl::StatusOr<Plan> plan = PlanFor(spec, schedule);
    if (!plan.ok()) return plan.status();
    pool = cache_.Insert(key, Compile(*std::move(plan)), *channel);
  }
  return pool->Take();
}

absl::StatusOr<Plan> Communicator::Impl::PlanFor(const CollectiveSpec& spec, const Schedule* schedule) const {
  // Selection computes with the sizes, which are meaningless otherwise.
  if (absl::Status status = Validate(spec, channel->rank(), channel->size()); !status.ok()) return status;
  if (const auto configured = runtime->schedules.find(spec.collective);
      schedule == nullptr && configured != runtime->schedules.end()) {
    schedule = configured->second;
  }
  if (schedule == nullptr) {
    absl::StatusOr<const Schedule*> chosen = ChooseSchedule(spec, channel->size(), plan_options);
    if (!chosen.ok()) return chosen.status();
    schedule = *chosen;
  }
  return BuildPlan(*schedule, spec, channel->rank(), channel->size(), plan_options);
}

absl::StatusOr<BoundPlan> Communicator::Impl::Bind(Plan plan, const PlanBuffers& buffers) {
  if (in_forked_child()) return NotInForkedChild(channel->rank());
  if (plan.rank != channel->rank() || plan.size != channel->size()) {
    return absl::InvalidArgumentError(absl::StrCat("plan ", plan.name, " is for rank ", plan.rank, " of ", plan.size,
                                                   ", this is rank ", channel->rank(), " of ", channel->size()));
  }
  if (absl::Status status = Validate(plan.spec, plan.rank, plan.size); !status.ok()) return status;
  if (plan.maps_peers() && !plan_options.peers_mapped) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan ", plan.name, " maps peers' memory, which this communicator cannot"));
  }
  const auto missing = [&](absl::string_view which, std::int64_t bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan ", plan.name, " of rank ", plan.rank, ": ", which, " is null but holds ", bytes, " bytes"));
  };
  if (plan.in_bytes > 0 && buffers.in == nullptr) return missing("in", plan.in_bytes);
  if (plan.out_bytes > 0 && buffers.out == nullptr) return missing("out", plan.out_bytes);
  if (plan.state_bytes > 0 && buffers.state == nullptr) return missing("state", plan.state_bytes);
  tutti::Call* const call = tutti::Call::Create(Compile(std::move(plan)), *channel, buffers.scratch);
  auto impl = std::make_unique<BoundPlan::Impl>(call);
  if (absl::Status status = call->SetBuffers(buffers.in, buffers.out, buffers.state); !status.ok()) {
    return status;
  }
  return BoundPlan(std::move(impl));
}

}  // namespace tutti
