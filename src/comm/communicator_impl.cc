#include "comm/communicator_impl.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/exactly.h"
#include "plan/shared_beginning.h"
#include "tutti/algorithm.h"
#include "tutti/cost_model.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

// The bytes of ordinary memory that the plans of one communicator may take: some thousand plans of few ranks, or
// about ten of hundreds of stages.
constexpr std::int64_t kMaxPlanBytes = std::int64_t{8} << 20;

// The bytes of the arena that idle calls of one communicator may hold; fewer where the arena is small.
constexpr std::int64_t kMaxIdleBytes = std::int64_t{256} << 20;

absl::Status CheckTimeout(const CallOptions& options, Rank rank) {
  if (options.timeout >= absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("call of rank ", rank, ": timeout ",
                                                 absl::FormatDuration(options.timeout),
                                                 " must be positive, or 0 for the communicator's"));
}

// An error for a factor other than 1 in a call that is no premultiplied sum: the caller probably meant a premultiplied
// sum.
absl::Status CheckFactor(const CallOptions& options, const CollectiveSpec& spec, Rank rank) {
  const bool premultiplies = Reduces(spec.collective) && spec.op == ReduceOp::kPremulSum;
  if (premultiplies || options.factor == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToString(spec), " of rank ", rank, ": factor ",
                                                 Exactly(options.factor),
                                                 " must be 1: only op premul_sum multiplies by it"));
}

absl::Status CheckTag(const CallOptions& options, const CollectiveSpec& spec, bool on_device, Rank rank) {
  const bool has_tag = IsPointToPoint(spec.collective);
  const std::int32_t most = has_tag && !on_device ? kMaxTag : 0;
  if (options.tag >= 0 && options.tag <= most) return absl::OkStatus();
  const std::string right = !has_tag    ? "0: only send and recv have a tag"
                            : on_device ? "0 on the memory of a GPU: NCCL matches messages by their order alone"
                                        : absl::StrCat("in 0…", most);
  return absl::InvalidArgumentError(
      absl::StrCat(ToString(spec), " of rank ", rank, ": tag ", options.tag, " must be ", right));
}

// Sets `in_place`, for `spec`, from where the caller's buffers lie; InvalidArgument says what is wrong with the
// buffers.
absl::Status PlaceBuffers(const CollectiveSpec& spec, const BufferBytes& bytes, const void* in, void* out, Rank rank,
                          bool& in_place) {
  const auto [in_bytes, out_bytes] = bytes;
  const auto missing = [&](absl::string_view which, std::int64_t held) {
    return absl::InvalidArgumentError(
        absl::StrCat(Name(spec.collective), " of rank ", rank, ": ", which, " is null but holds ", held, " bytes"));
  };
  if (in_bytes > 0 && in == nullptr) return missing("in", in_bytes);
  if (out_bytes > 0 && out == nullptr) return missing("out", out_bytes);
  if (in_bytes == 0 || out_bytes == 0) return absl::OkStatus();
  const auto* const in_begin = static_cast<const std::byte*>(in);
  const auto* const out_begin = static_cast<const std::byte*>(out);
  const bool exchanges = spec.collective == Collective::kAllToAll || spec.collective == Collective::kAllToAllV;
  if (!exchanges) {
    if (in_bytes <= out_bytes) {
      in_place = in_begin == out_begin + (in_bytes < out_bytes ? rank * in_bytes : 0);
    } else {
      in_place = out_begin == in_begin + rank * out_bytes;
    }
  }
  if (!in_place && in_begin < out_begin + out_bytes && out_begin < in_begin + in_bytes) {
    const auto block = [rank](absl::string_view part, absl::string_view whole, std::int64_t length) {
      return absl::StrCat("in place, ", part, " must be the block of this rank in ", whole, ", ", rank * length,
                          " bytes after the begin of ", whole);
    };
    const std::string right = exchanges               ? absl::StrCat(Name(spec.collective), " has no in-place form")
                              : in_bytes == out_bytes ? "in place, in and out must be equal"
                              : in_bytes < out_bytes  ? block("in", "out", in_bytes)
                                                      : block("out", "in", out_bytes);
    return absl::InvalidArgumentError(
        absl::StrCat(Name(spec.collective), " of rank ", rank, ": in and out overlap; ", right));
  }
  return absl::OkStatus();
}

// What `rank` calls in an example of an all_to_all_v, in which a rank sends blocks of different lengths, one of them
// empty and one of 64 bytes, to any five ranks in a row; of two ranks, one sends the other 64 bytes. In worlds of up to
// 32 ranks, whose plans can be verified quickly, the longest block has about 16 · segment_bytes / size bytes, in small
// worlds several segments; in larger worlds long blocks have 640 to 1,280 bytes. Where plans are not cut into segments,
// no block has several.
CollectiveSpec ExampleOfAllToAllV(DType dtype, Rank rank, int size, const PlanOptions& options) {
  constexpr std::int64_t kLongestSegment = std::int64_t{64} << 20;
  const std::int64_t segment = std::min(options.segment_bytes, kLongestSegment);
  const std::int64_t unit = size <= 32 ? std::max<std::int64_t>(4 * segment / size, 320) : 320;
  const auto count = [=](Rank from, Rank to) {
    const int kind = (2 * from + 3 * to + (size == 2 ? 4 : 0)) % 5;
    return (kind == 1 ? 64 : kind * unit) / SizeOf(dtype);
  };
  CollectiveSpec spec = {.collective = Collective::kAllToAllV, .dtype = dtype};
  for (Rank peer = 0; peer < size; ++peer) {
    spec.send_counts.push_back(count(rank, peer));
    spec.recv_counts.push_back(count(peer, rank));
  }
  return spec;
}

// Whether `schedule` serves calls of at least one of a few lengths.
bool ServesSome(const Schedule& schedule, int size, const PlanOptions& options) {
  constexpr std::int64_t kCounts[] = {1, 1 << 12, 1 << 20, 1 << 24};
  return std::any_of(std::begin(kCounts), std::end(kCounts), [&](std::int64_t count) {
    CollectiveSpec spec = {.collective = schedule.collective};
    if (spec.collective == Collective::kAllToAllV) {
      spec.send_counts.assign(static_cast<std::size_t>(size), count);
      spec.recv_counts = spec.send_counts;
    } else if (spec.collective != Collective::kBarrier) {
      spec.count = count;
    }
    return schedule.supports(spec, size, options).ok();
  });
}

// InvalidArgument when a buffer is missing that the plan needs, or input and output overlap.
absl::Status CheckBuffers(const Plan& plan, const PlanBuffers& buffers) {
  const auto missing = [&](absl::string_view which, std::int64_t bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan ", plan.name, " of rank ", plan.rank, ": ", which, " is null but holds ", bytes, " bytes"));
  };
  if (plan.in_bytes > 0 && buffers.in == nullptr) return missing("in", plan.in_bytes);
  if (plan.out_bytes > 0 && buffers.out == nullptr) return missing("out", plan.out_bytes);
  if (plan.state_bytes > 0 && buffers.state == nullptr) return missing("state", plan.state_bytes);
  const auto* const in = static_cast<const std::byte*>(buffers.in);
  const auto* const out = static_cast<const std::byte*>(buffers.out);
  if (plan.in_bytes > 0 && plan.out_bytes > 0 && in < out + plan.out_bytes && out < in + plan.in_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("plan ", plan.name, " of rank ", plan.rank,
                                                   ": in and out overlap; a plan has one memory for both only where ",
                                                   "the call says in_place, and then it is named as out"));
  }
  return absl::OkStatus();
}

absl::Status HasNoPlan() {
  return absl::FailedPreconditionError(
      "this BoundPlan has no plan: Communicator::Bind has not made it, or it was moved");
}

}  // namespace

absl::Status CheckCallOptions(const CallOptions& options, const CollectiveSpec& spec, bool on_device, Rank rank) {
  if (options.timeout == absl::ZeroDuration() && options.factor == 1 && options.tag == 0) return absl::OkStatus();
  absl::Status status = CheckTimeout(options, rank);
  status.Update(CheckFactor(options, spec, rank));
  status.Update(CheckTag(options, spec, on_device, rank));
  return status;
}

BoundPlan::BoundPlan() = default;
BoundPlan::~BoundPlan() = default;
BoundPlan::BoundPlan(BoundPlan&&) noexcept = default;
BoundPlan& BoundPlan::operator=(BoundPlan&&) noexcept = default;
BoundPlan::BoundPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Work BoundPlan::Start(const CallOptions& options) {
  return impl_ != nullptr ? impl_->Start(options) : Work(HasNoPlan());
}
Work BoundPlan::LastRun() const { return impl_ != nullptr ? impl_->LastRun() : Work(); }
absl::Status BoundPlan::Rebind(const PlanBuffers& buffers) {
  return impl_ != nullptr ? impl_->Rebind(buffers) : HasNoPlan();
}
const Plan& BoundPlan::plan() const {
  static const Plan& none = *new Plan;
  return impl_ != nullptr ? impl_->plan() : none;
}

Work BoundPlan::Impl::Start(const CallOptions& options) {
  if (call_->in_forked_child()) return Work(NotInForkedChild(plan().rank));
  const bool on_device = call_->program().stream_order != nullptr;
  if (absl::Status status = CheckCallOptions(options, plan().spec, on_device, plan().rank); !status.ok()) {
    return Work(status);
  }
  if (call_->busy()) {
    return Work(absl::FailedPreconditionError(
        absl::StrCat("rank ", plan().rank, ": ", plan().name, " was started again before its last run had ended")));
  }
  absl::Status placed = call_->SetBuffersAgain();
  if (call_->program().uses_lane) {
    call_->RefuseNextRun(std::move(placed));  // an OK status clears a refusal of Rebind
  } else if (!placed.ok()) {
    return Work(on_device ? NotPlaced(std::move(placed)) : placed);
  }
  call_->AddReference();
  last_run_ = call_->Submit(options);
  return Work(call_, last_run_);
}

Work BoundPlan::Impl::LastRun() const {
  if (last_run_ == 0) return Work();
  call_->AddReference();
  return Work(call_, last_run_);
}

absl::Status BoundPlan::Impl::Rebind(const PlanBuffers& buffers) {
  if (call_->in_forked_child()) return NotInForkedChild(plan().rank);
  if (call_->busy()) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", plan().rank, ": ", plan().name, " was given other memory before its last run had ended"));
  }
  if (absl::Status status = CheckBuffers(plan(), buffers); !status.ok()) return status;
  if (absl::Status status = CheckKindOfMemory(buffers); !status.ok()) return NotPlaced(std::move(status));
  absl::Status placed = call_->SetBuffers(buffers.in, buffers.out, buffers.state);
  // Without a run of this rank the peers would wait, so the next run is started and refused with `placed`; an OK status
  // clears an earlier refusal.
  if (placed.ok() || call_->program().uses_lane) call_->RefuseNextRun(placed);
  return call_->program().stream_order != nullptr ? NotPlaced(std::move(placed)) : placed;
}

absl::Status BoundPlan::Impl::NotPlaced(absl::Status error) const {
  if (!error.ok()) runtime_.engine->AbortUnlessInvalid(call_->run().channel, error);
  return error;
}

absl::Status BoundPlan::Impl::CheckKindOfMemory(const PlanBuffers& buffers) const {
  if (call_->program().stream_order != nullptr) return absl::OkStatus();
  const absl::StatusOr<bool> on_device =
      AreOnDevice(runtime_.device, plan().rank, {buffers.in, buffers.out, buffers.state});
  if (!on_device.ok() || !*on_device) return on_device.status();
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", plan().rank, ": ", plan().name,
                   " is bound to memory of the host and is given memory of a GPU; bind another plan to that memory"));
}

Communicator::Impl::Impl(std::shared_ptr<Runtime> its_runtime, std::unique_ptr<Channel> its_channel,
                         std::shared_ptr<Store> its_store)
    : runtime(std::move(its_runtime)),
      channel(std::move(its_channel)),
      store(std::move(its_store)),
      plan_options(PlanOptionsOf(*runtime, *channel)),
      device_options(PlanOptionsOnDevice(*runtime, plan_options)),
      cache_(kMaxPlanBytes, std::min(kMaxIdleBytes, runtime->arena->bytes() / 8)) {
  runtime->Register(&cache_);
  if (!runtime->device.has_value()) return;
  Plan plan;
  plan.name = "send_recv";
  plan.rank = channel->rank();
  plan.size = channel->size();
  plan.spec.collective = Collective::kSend;
  message_calls_ = std::make_shared<CallPool>(CompileForMessages(std::move(plan)), *channel, idle_message_calls_,
                                              /*schedule=*/nullptr, BufferBytes());
}

Communicator::Impl::~Impl() {
  runtime->engine->Close(*channel);
  runtime->Unregister(&cache_);
  UnusedCalls unused;
  if (message_calls_ != nullptr) message_calls_->Close(unused);
  idle_message_calls_->Close();
}

void Communicator::Impl::EndUnlessUnused() const {
  const int bound_plans = bound_plans_->load();
  if (bound_plans == 0) return;
  std::fprintf(stderr,
               "tutti: rank %d destroys a communicator that is still in use: destroy the %d plan(s) that were bound to "
               "it first, or the synchronizers and bucket exchanges that have bound them\n",
               channel->rank(), bound_plans);
  std::abort();
}

Work Communicator::Impl::Call(const CollectiveSpec& spec, const void* in, void* out, const CallOptions& options) {
  if (in_forked_child()) return Work(NotInForkedChild(channel->rank()));
  const Rank rank = channel->rank();
  const int size = channel->size();
  const absl::StatusOr<bool> on_device = IsOnDevice(in, out, spec, options);
  if (!on_device.ok()) return NotMade(on_device.status());
  BufferBytes bytes;
  const auto fits_its_plan = [&](const CallPool& pool, const tutti::Call* idle) {
    bytes = pool.buffers();
    if (!CheckCallOptions(options, pool.spec(), *on_device, rank).ok()) return false;
    if (idle != nullptr && idle->was_given(in, out, spec.in_place)) return true;
    bool in_place = spec.in_place;
    return PlaceBuffers(pool.spec(), bytes, in, out, rank, in_place).ok() && in_place == pool.spec().in_place;
  };
  tutti::Call* call = cache_.TakeIdleAgain(spec, options.schedule, *on_device, fits_its_plan);
  if (call == nullptr) {
    // The spec is validated first: the sizes below would be meaningless otherwise.
    if (absl::Status status = Validate(spec, rank, size); !status.ok()) return Work(status);
    if (absl::Status status = CheckCallOptions(options, spec, *on_device, rank); !status.ok()) return Work(status);
    bytes = BuffersOf(spec, rank, size);
    CollectiveSpec placed = spec;
    if (absl::Status status = PlaceBuffers(spec, bytes, in, out, rank, placed.in_place); !status.ok()) {
      return Work(status);
    }
    absl::StatusOr<tutti::Call*> taken = IdleCallFor(placed, options.schedule, *on_device);
    if (!taken.ok()) return Work(taken.status());
    call = *taken;
  }
  call->SetGiven(in, out, spec.in_place);
  // In place there is one memory, as long as the longer of input and output.
  if (call->program().plan.spec.in_place && bytes.in > bytes.out) out = const_cast<void*>(in);
  if (absl::Status status = call->SetBuffers(in, out, nullptr); !status.ok()) {
    if (!call->program().uses_lane) {
      call->Release();
      return *on_device ? NotMade(status) : Work(status);
    }
    // The peers would wait for this rank, so this rank makes the call, and all ranks hear that it cannot take part.
    call->RefuseNextRun(std::move(status));
  }
  return Work(call, call->Submit(options));
}

Work Communicator::Impl::NotMade(const absl::Status& error) const {
  runtime->engine->AbortUnlessInvalid(*channel, error);
  return Work(error);
}

absl::StatusOr<tutti::Call*> Communicator::Impl::IdleCallFor(const CollectiveSpec& spec, const Schedule* schedule,
                                                             bool on_device) {
  const CallKey key{spec, schedule, on_device};
  if (tutti::Call* const idle = cache_.TakeIdle(key); idle != nullptr) return idle;
  std::shared_ptr<CallPool> pool = cache_.Find(key);
  if (pool == nullptr) {
    absl::StatusOr<std::shared_ptr<const Program>> program =
        on_device ? ProgramOnDevice(spec, schedule) : ProgramFor(spec, schedule);
    if (!program.ok()) return program.status();
    if (absl::Status runnable = runtime->engine->MakeRunnable(**program); !runnable.ok()) {
      // Other errors than Unimplemented, such as too little memory for a kernel, may be of this rank alone.
      if (!absl::IsUnimplemented(runnable)) runtime->engine->Abort(*channel, runnable);
      return runnable;
    }
    pool = cache_.Insert(key, *std::move(program), *channel);
  }
  return pool->Take();
}

const Schedule* Communicator::Impl::ConfiguredFor(Collective collective, const PlanOptions& options) const {
  const auto configured = runtime->schedules.find(collective);
  if (configured == runtime->schedules.end()) return nullptr;
  const Schedule* const named = configured->second;
  if (!runtime->device.has_value() || ServesSome(*named, channel->size(), options)) return named;
  const PlanOptions& elsewhere = &options == &device_options ? plan_options : device_options;
  return ServesSome(*named, channel->size(), elsewhere) ? nullptr : named;
}

absl::StatusOr<const Schedule*> Communicator::Impl::ScheduleFor(const CollectiveSpec& spec, const Schedule* wanted,
                                                                bool private_buffers,
                                                                const PlanOptions& options) const {
  // Selection computes with sizes, which are meaningful for a valid spec only.
  if (absl::Status status = Validate(spec, channel->rank(), channel->size()); !status.ok()) return status;
  if (wanted == nullptr) wanted = ConfiguredFor(spec.collective, options);
  if (wanted != nullptr && wanted != &kSelectorsChoice) return wanted;
  absl::StatusOr<const Schedule*> chosen = ChooseSchedule(spec, channel->size(), options);
  // Between nodes, messages are sent straight from the callers' buffers.
  const bool may_stage = private_buffers && options.all_mapped();
  if (!chosen.ok() || !may_stage) return chosen;
  return ChooseForPrivateBuffers(**chosen, spec, channel->size(), options);
}

absl::StatusOr<Plan> Communicator::Impl::PlanFor(const CollectiveSpec& spec, const Schedule* wanted,
                                                 bool private_buffers, const PlanOptions& options) const {
  absl::StatusOr<const Schedule*> schedule = ScheduleFor(spec, wanted, private_buffers, options);
  if (!schedule.ok()) return schedule.status();
  return BuildPlan(**schedule, spec, channel->rank(), channel->size(), options);
}

absl::StatusOr<Plan> Communicator::Impl::VerifiedPlanFor(const CollectiveSpec& spec, const Schedule& schedule,
                                                         const PlanOptions& options) const {
  absl::StatusOr<Plan> plan = BuildPlan(schedule, spec, channel->rank(), channel->size(), options);
  if (!plan.ok()) return plan.status();
  if (absl::Status status = CheckPlan(schedule, *plan, options); !status.ok()) return status;
  return plan;
}

absl::StatusOr<std::shared_ptr<const Program>> Communicator::Impl::ProgramFor(const CollectiveSpec& spec,
                                                                              const Schedule* wanted) const {
  absl::StatusOr<const Schedule*> schedule = ScheduleFor(spec, wanted, /*private_buffers=*/false, plan_options);
  if (!schedule.ok()) return schedule.status();
  absl::StatusOr<Plan> plan = VerifiedPlanFor(spec, **schedule, plan_options);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<const Schedule*> for_private = ScheduleFor(spec, wanted, /*private_buffers=*/true, plan_options);
  if (!for_private.ok()) return for_private.status();
  const bool reads_processes = ReadsProcesses(**for_private, spec, channel->size(), plan_options);
  if (*for_private == *schedule && !reads_processes) {
    absl::StatusOr<bool> shares_only_scratch = (*schedule)->touches_only_scratch_of_peers;
    // The counts of an all_to_all_v are known to their rank alone.
    if (!*shares_only_scratch && spec.collective != Collective::kAllToAllV) {
      shares_only_scratch = SharesOnlyScratch(
          *plan, [&](Rank rank) { return BuildPlan(**schedule, spec, rank, channel->size(), plan_options); });
    }
    if (!shares_only_scratch.ok()) return shares_only_scratch.status();
    return Compile(*std::move(plan), *shares_only_scratch);
  }
  absl::StatusOr<Plan> other = VerifiedPlanFor(spec, **for_private, plan_options);
  if (!other.ok()) return other.status();
  const StepId beginning = reads_processes ? SharedBeginningOfReader(*plan, *other) : SharedBeginning(*plan, *other);
  if (beginning == 0) {
    return absl::InternalError(absl::StrCat("the plans of ", plan->name, " and ", other->name, " for ", ToString(spec),
                                            " begin alike on other ranks, but not on rank ", channel->rank()));
  }
  return Compile(*std::move(plan), *std::move(other), beginning, reads_processes);
}

bool Communicator::Impl::IsVerifiedExample(const Schedule& schedule, const PlanOptions& options) const {
  const MutexLock lock(examples_mutex_);
  return verified_examples_.contains({&schedule, &options});
}

// Verifies the plans of all ranks, which a rank can make by itself but in two cases. A rank does not know the counts of
// the others in an all_to_all_v: there an example of the type of the first call is verified for each schedule, on host
// memory and on GPUs. Nor does a rank know the schedule of the peer of a Send or Recv: both plans are one message.
absl::Status Communicator::Impl::CheckPlan(const Schedule& schedule, const Plan& plan,
                                           const PlanOptions& options) const {
  PlanVerifier& verifier = PlanVerifier::OfProcess();
  if (!verifier.verifies()) return absl::OkStatus();
  if (schedule.collective == Collective::kAllToAllV && IsVerifiedExample(schedule, options)) return absl::OkStatus();
  const int size = channel->size();
  const std::string maker =
      absl::StrCat("schedule ", plan.name, " (", absl::Hex(reinterpret_cast<std::uintptr_t>(&schedule)), ")");
  const auto kind = [&](const std::string& what) {
    return PlanVerifier::Kind{.maker = plan.name,
                              .call = absl::StrCat(maker, " ", what, " on ", size, " ranks ", KeyOf(options))};
  };
  switch (schedule.collective) {
    case Collective::kSend:
    case Collective::kRecv:
      return absl::OkStatus();
    case Collective::kAllToAllV: {
      const auto example_of = [&](Rank rank) {
        return BuildPlan(schedule, ExampleOfAllToAllV(plan.spec.dtype, rank, size, options), rank, size, options);
      };
      const absl::StatusOr<Plan> example = example_of(channel->rank());
      if (absl::IsUnimplemented(example.status())) return absl::OkStatus();
      if (!example.ok()) return example.status();
      absl::Status checked =
          verifier.Check(kind(absl::StrCat("example of ", Name(plan.spec.dtype))), *example, example_of, kinds_made_);
      const MutexLock lock(examples_mutex_);
      if (checked.ok()) verified_examples_.insert({&schedule, &options});
      return checked;
    }
    default:
      break;
  }
  const auto check = [&](const Plan& own) {
    const auto plan_of = [&](Rank rank) { return BuildPlan(schedule, own.spec, rank, size, options); };
    CollectiveSpec call = own.spec;
    call.in_place = false;
    PlanVerifier::Kind of_call = kind(ToString(call));
    of_call.in_place = own.spec.in_place;
    return verifier.Check(of_call, own, plan_of, kinds_made_);
  };
  absl::Status checked = check(plan);
  const bool has_root = HasRoot(schedule.collective);
  // Ranks that all map each other's memory compare whether they call in place.
  const bool all_are_alike = options.all_mapped() && plan.maps_peers() && !has_root;
  if (!checked.ok() || all_are_alike || !HasInPlaceForm(schedule.collective)) return checked;
  // A rank does not know which of the others call in place: all ranks verify both forms, so that all refuse the call.
  CollectiveSpec other = plan.spec;
  other.in_place = !other.in_place;
  const absl::StatusOr<Plan> form = BuildPlan(schedule, other, channel->rank(), size, options);
  if (!has_root && absl::IsUnimplemented(form.status())) return checked;
  return form.ok() ? check(*form) : form.status();
}

absl::StatusOr<BoundPlan> Communicator::Impl::Bind(const CollectiveSpec& spec, const PlanBuffers& buffers,
                                                   const CallOptions& options) {
  if (in_forked_child()) return NotInForkedChild(channel->rank());
  const absl::StatusOr<bool> on_device = IsOnDevice(buffers.in, buffers.out, spec, options);
  if (!on_device.ok()) return on_device.status();
  absl::StatusOr<std::shared_ptr<const Program>> program =
      *on_device ? ProgramOnDevice(spec, options.schedule) : ProgramFor(spec, options.schedule);
  if (!program.ok()) return program.status();
  if (absl::Status status = CheckBinding((*program)->plan, buffers); !status.ok()) return status;
  return BindVerified(*std::move(program), buffers);
}

absl::StatusOr<BoundPlan> Communicator::Impl::Bind(PlanOfRank plan_of, const PlanBuffers& buffers) {
  if (in_forked_child()) return NotInForkedChild(channel->rank());
  absl::StatusOr<Plan> plan = plan_of(channel->rank());
  if (!plan.ok()) return plan.status();
  if (absl::Status status = CheckBinding(*plan, buffers); !status.ok()) return status;
  if (absl::Status status = VerifyPlansOfAllRanks(*plan, plan_of); !status.ok()) return status;
  if (absl::Status status = CheckNodes(*plan, plan_of); !status.ok()) return status;
  const absl::StatusOr<bool> on_device = AreOnDevice({buffers.in, buffers.out, buffers.state});
  if (!on_device.ok()) return on_device.status();
  if (*on_device) return BindOnDevice(*std::move(plan), plan_of, buffers);
  const absl::StatusOr<bool> shares_only_scratch = SharesOnlyScratch(*plan, plan_of);
  if (!shares_only_scratch.ok()) return shares_only_scratch.status();
  return BindVerified(Compile(*std::move(plan), *shares_only_scratch), buffers);
}

absl::StatusOr<BoundPlan> Communicator::Impl::Bind(const Strategy& strategy, DType dtype, std::int64_t count, int round,
                                                   const PlanBuffers& buffers) {
  if (in_forked_child()) return NotInForkedChild(channel->rank());
  const int size = channel->size();
  const auto plan_of = [&](Rank rank, const PlanOptions& options) -> absl::StatusOr<Plan> {
    absl::StatusOr<Plan> plan = BuildPlan(strategy, dtype, count, rank, size, options, round);
    // Ranks with two plans must not take a call of another strategy for theirs.
    if (plan.ok() && options.private_buffers) absl::StrAppend(&plan->name, " of private buffers");
    return plan;
  };
  const absl::StatusOr<bool> on_device = AreOnDevice({buffers.in, buffers.out, buffers.state});
  if (!on_device.ok()) return on_device.status();
  const PlanOptions& options_here = *on_device ? device_options : plan_options;
  absl::StatusOr<Plan> plan = plan_of(channel->rank(), options_here);
  if (!plan.ok()) return plan.status();
  const std::string name = strategy.ToString();
  const auto verify = [&](const Plan& one, const PlanOptions& options) {
    const std::string maker = absl::StrCat(name, options.private_buffers ? " of private buffers" : "");
    const PlanVerifier::Kind kind = {.maker = maker,
                                     .call = absl::StrCat("strategy ", name, " ", Name(dtype), " count=", count,
                                                          " round=", round, " on ", size, " ranks ", KeyOf(options))};
    const auto plan_of_rank = [&](Rank rank) { return plan_of(rank, options); };
    absl::Status verified = PlanVerifier::OfProcess().Check(kind, one, plan_of_rank, kinds_made_);
    // The name of a plan is that of the algorithm alone.
    return absl::IsFailedPrecondition(verified)
               ? absl::FailedPreconditionError(absl::StrCat("strategy ", name, ": ", verified.message()))
               : verified;
  };
  if (absl::Status status = CheckBinding(*plan, buffers); !status.ok()) return status;
  if (absl::Status status = verify(*plan, options_here); !status.ok()) return status;
  if (*on_device) {
    return BindOnDevice(
        *std::move(plan), [&](Rank rank) { return plan_of(rank, device_options); }, buffers, name);
  }
  const auto bind_alone = [&]() -> absl::StatusOr<BoundPlan> {
    const absl::StatusOr<bool> shares_only_scratch =
        SharesOnlyScratch(*plan, [&](Rank rank) { return plan_of(rank, plan_options); });
    if (!shares_only_scratch.ok()) return shares_only_scratch.status();
    return BindVerified(Compile(*std::move(plan), *shares_only_scratch, name), buffers);
  };
  // Between nodes, messages are sent straight from the callers' buffers.
  if (!plan->maps_peers() || !plan_options.one_node()) return bind_alone();

  PlanOptions for_private = plan_options;
  for_private.private_buffers = true;
  absl::StatusOr<Plan> other = plan_of(channel->rank(), for_private);
  if (!other.ok()) return other.status();
  // All ranks must come to one decision, and the plans of some ranks may begin alike while those of others do not.
  StepId beginning = 0;
  for (Rank rank = 0; rank < size; ++rank) {
    const absl::StatusOr<Plan> one = plan_of(rank, plan_options);
    const absl::StatusOr<Plan> staged = plan_of(rank, for_private);
    if (!one.ok()) return one.status();
    if (!staged.ok()) return staged.status();
    const bool equal = one->steps == staged->steps && one->refs == staged->refs && one->deps == staged->deps;
    const StepId shared = equal ? 0 : SharedBeginning(*one, *staged);
    if (shared == 0) return bind_alone();
    if (rank == channel->rank()) beginning = shared;
  }
  if (absl::Status status = verify(*other, for_private); !status.ok()) return status;
  return BindVerified(Compile(*std::move(plan), *std::move(other), beginning, /*reads_processes=*/false, name),
                      buffers);
}

absl::Status Communicator::Impl::CheckBinding(const Plan& plan, const PlanBuffers& buffers) const {
  if (plan.rank != channel->rank() || plan.size != channel->size()) {
    return absl::InvalidArgumentError(absl::StrCat("plan ", plan.name, " is for rank ", plan.rank, " of ", plan.size,
                                                   ", this is rank ", channel->rank(), " of ", channel->size()));
  }
  if (absl::Status status = Validate(plan.spec, plan.rank, plan.size); !status.ok()) return status;
  if (plan.maps_peers() && !plan_options.peers_mapped) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan ", plan.name, " maps peers' memory, which this communicator cannot"));
  }
  return CheckBuffers(plan, buffers);
}

absl::StatusOr<BoundPlan> Communicator::Impl::BindVerified(std::shared_ptr<const Program> program,
                                                           const PlanBuffers& buffers) {
  if (absl::Status runnable = runtime->engine->MakeRunnable(*program); !runnable.ok()) return runnable;
  tutti::Call* const call = tutti::Call::Create(std::move(program), *channel, buffers.scratch);
  auto impl = std::make_unique<BoundPlan::Impl>(*runtime, call, bound_plans_);
  if (absl::Status status = call->SetBuffers(buffers.in, buffers.out, buffers.state); !status.ok()) {
    return status;
  }
  return BoundPlan(std::move(impl));
}

}  // namespace tutti
