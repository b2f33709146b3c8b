#include "comm/communicator_impl.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

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
  if (!operation_->done(operation_->runs_started)) {
    return Work(absl::FailedPreconditionError(
        absl::StrCat("rank ", plan().rank, ": ", plan().name, " was started again before its last run had ended")));
  }
  operation_->AddReference();
  operation_->timed = options.timed;
  operation_->background = options.background;
  operation_->draw = options.draw;
  return Work(operation_, operation_->engine.Submit(*operation_, options.caller_drives));
}

Communicator::Impl::Impl(std::shared_ptr<Runtime> its_runtime, std::unique_ptr<Channel> its_channel,
                         std::shared_ptr<Store> its_store)
    : runtime(std::move(its_runtime)),
      channel(std::move(its_channel)),
      store(std::move(its_store)),
      plan_options(PlanOptionsOf(*runtime, *channel)) {}

Communicator::Impl::~Impl() { runtime->engine->Close(*channel); }

Work Communicator::Impl::Call(const CollectiveSpec& requested, const void* in, void* out, const CallOptions& options) {
  CollectiveSpec spec = requested;
  const Rank rank = channel->rank();
  const int size = channel->size();
  // Validated first: the sizes below are meaningless otherwise.
  if (absl::Status status = Validate(spec, rank, size); !status.ok()) return Work(status);
  if (absl::Status status = PlaceBuffers(spec, in, out, rank, size); !status.ok()) return Work(status);
  absl::StatusOr<Operation*> operation = OperationFor(spec, options.schedule);
  if (!operation.ok()) return Work(operation.status());
  // In place there is one memory, as long as the longer of input and output.
  if (spec.in_place && InputCount(spec, rank, size) > OutputCount(spec, rank, size)) out = const_cast<void*>(in);
  if (absl::Status status = (*operation)->SetBuffers(in, out, nullptr); !status.ok()) {
    (*operation)->Release();
    return Work(status);
  }
  (*operation)->timed = options.timed;
  (*operation)->background = options.background;
  return Work(*operation, runtime->engine->Submit(**operation, options.caller_drives));
}

absl::StatusOr<Operation*> Communicator::Impl::OperationFor(const CollectiveSpec& spec, const Schedule* schedule) {
  const CallKey key{spec, schedule};
  std::shared_ptr<OperationPool> pool = cache_.Find(key);
  if (pool == nullptr) {
    absl::StatusOr<Plan> plan = PlanFor(spec, schedule);
    if (!plan.ok()) return plan.status();
    pool = cache_.Insert(key, std::make_shared<OperationPool>(Compile(*std::move(plan)), *channel));
  }
  return pool->Take();
}

absl::StatusOr<Plan> Communicator::Impl::PlanFor(const CollectiveSpec& spec, const Schedule* schedule) const {
  if (const auto configured = runtime->schedules.find(spec.collective);
      schedule == nullptr && configured != runtime->schedules.end()) {
    schedule = configured->second;
  }
  if (schedule == nullptr) {
    absl::StatusOr<Selection> selection = SelectSchedule(spec, channel->size(), plan_options);
    if (!selection.ok()) return selection.status();
    schedule = selection->schedule;
  }
  return BuildPlan(*schedule, spec, channel->rank(), channel->size(), plan_options);
}

absl::StatusOr<BoundPlan> Communicator::Impl::Bind(Plan plan, const PlanBuffers& buffers) {
  if (plan.rank != channel->rank() || plan.size != channel->size()) {
    return absl::InvalidArgumentError(absl::StrCat("plan ", plan.name, " is for rank ", plan.rank, " of ", plan.size,
                                                   ", this is rank ", channel->rank(), " of ", channel->size()));
  }
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
  absl::StatusOr<Operation*> operation = Operation::Create(Compile(std::move(plan)), *channel, buffers.scratch);
  if (!operation.ok()) return operation.status();
  auto impl = std::make_unique<BoundPlan::Impl>(*operation);
  if (absl::Status status = (*operation)->SetBuffers(buffers.in, buffers.out, buffers.state); !status.ok()) {
    return status;
  }
  return BoundPlan(std::move(impl));
}

absl::StatusOr<std::unique_ptr<Communicator::Impl>> Communicator::Impl::Split(int color, int key) {
  const int size = channel->size();
  absl::StatusOr<Buffer> control = NewControlBlock(*runtime->arena);
  if (!control.ok()) return control.status();
  // A number that no other channel of this process has or gets, also when threads split at the same time: see
  // Channel::TagOf.
  const std::int64_t number = color >= 0 ? runtime->next_channel.fetch_add(1) : 0;
  struct Member {
    std::int64_t color, key, rank, world_rank, channel, offset;
  };
  constexpr int kFields = sizeof(Member) / sizeof(std::int64_t);
  const Member mine{color,           key,
                    channel->rank(), channel->peer(channel->rank()).world_rank,
                    number,          runtime->arena->OffsetOf(control->data())};
  std::vector<Member> members(size);
  Work gather = Call({.collective = Collective::kAllGather, .dtype = DType::kI64, .count = kFields}, &mine,
                     members.data(), {.caller_drives = true});
  if (absl::Status status = gather.Wait(); !status.ok()) return status;
  for (const Member& member : members) {
    if (member.channel < kMostChannels) continue;
    return absl::ResourceExhaustedError(  // on all ranks alike
        absl::StrCat("rank ", channel->rank(), ": Split has put rank ", member.rank, " into ", kMostChannels - 1,
                     " groups, the most there may be"));
  }
  members.erase(std::remove_if(members.begin(), members.end(), [&](const Member& m) { return m.color != color; }),
                members.end());
  std::unique_ptr<Impl> impl;
  if (color >= 0) {
    std::sort(members.begin(), members.end(),
              [](const Member& a, const Member& b) { return std::tie(a.key, a.rank) < std::tie(b.key, b.rank); });
    std::vector<GroupMember> group;
    Rank rank = 0;
    for (const Member& member : members) {
      if (member.rank == channel->rank()) rank = static_cast<Rank>(group.size());
      group.push_back({.world_rank = static_cast<Rank>(member.world_rank),
                       .channel = static_cast<std::uint32_t>(member.channel),
                       .offset = member.offset});
    }
    // No two groups have one first rank and one number at it.
    const std::string keys = absl::StrCat("group/", group[0].channel, "/", group[0].world_rank, "/");
    impl = std::make_unique<Impl>(runtime, OpenChannel(*runtime, rank, group, *std::move(control)),
                                  MakePrefixStore(runtime->store, keys));
  }
  // Nobody signals on a channel that its peer has not opened.
  if (absl::Status status =
          Call({.collective = Collective::kBarrier}, nullptr, nullptr, {.caller_drives = true}).Wait();
      !status.ok()) {
    return status;
  }
  return impl;
}

}  // namespace tutti
