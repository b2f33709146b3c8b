#ifndef TUTTI_COMM_COMMUNICATOR_IMPL_H_
#define TUTTI_COMM_COMMUNICATOR_IMPL_H_

#include <atomic>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "comm/plan_cache.h"
#include "comm/plan_verifier.h"
#include "comm/runtime.h"
#include "tutti/communicator.h"

namespace tutti {

// OK, or InvalidArgument that names the option which does not fit a call of `spec`. `on_device`: on the memory of a
// GPU.
absl::Status CheckCallOptions(const CallOptions& options, const CollectiveSpec& spec, bool on_device, Rank rank);

// Whether the buffers that are not null are memory of a GPU; InvalidArgument when only some are. Of a rank without a
// GPU (`device` is nullopt) they are not.
absl::StatusOr<bool> AreOnDevice(const std::optional<StreamDevice>& device, Rank rank,
                                 absl::Span<const void* const> buffers);

class BoundPlan::Impl {
 public:
  // Counts itself in `bound_plans`. `runtime`: of the communicator, which outlives this.
  Impl(const Runtime& runtime, Call* call, std::shared_ptr<std::atomic<int>> bound_plans)
      : runtime_(runtime), call_(call), bound_plans_(std::move(bound_plans)) {
    bound_plans_->fetch_add(1);
  }
  ~Impl() {
    call_->Release();
    bound_plans_->fetch_sub(1);
  }

  Work Start(const CallOptions& options);
  Work LastRun() const;
  absl::Status Rebind(const PlanBuffers& buffers);
  const Plan& plan() const { return call_->program().plan; }

 private:
  // InvalidArgument where a plan that is bound to memory of the host would get memory of a GPU. Runs on a GPU check
  // their memory themselves.
  absl::Status CheckKindOfMemory(const PlanBuffers& buffers) const;
  // Passes on why the next run on a GPU, or one that would get memory of a GPU, has no memory: see
  // Engine::AbortUnlessInvalid.
  absl::Status NotPlaced(absl::Status error) const;

  const Runtime& runtime_;
  Call* const call_;
  const std::shared_ptr<std::atomic<int>> bound_plans_;  // how many there are of the communicator
  std::uint32_t last_run_ = 0;                           // number of the run that was started last; 0: none was started
};

class Communicator::Impl {
 public:
  Impl(std::shared_ptr<Runtime> runtime, std::unique_ptr<Channel> channel, std::shared_ptr<Store> store);
  // Unfinished calls end with Aborted: see Engine::Close.
  ~Impl();

  Work Call(const CollectiveSpec& spec, const void* in, void* out, const CallOptions& options);
  // The schedule that CommunicatorOptions::schedules names for calls with `options`, plan_options or device_options;
  // null: there is none, or it serves memory of the other kind alone.
  const Schedule* ConfiguredFor(Collective collective, const PlanOptions& options) const;
  // The schedule of a call, with `private_buffers` when peers cannot map the buffers of some rank. `wanted`:
  // CallOptions::schedule. `options`: plan_options or device_options.
  absl::StatusOr<const Schedule*> ScheduleFor(const CollectiveSpec& spec, const Schedule* wanted, bool private_buffers,
                                              const PlanOptions& options) const;
  absl::StatusOr<Plan> PlanFor(const CollectiveSpec& spec, const Schedule* wanted, bool private_buffers,
                               const PlanOptions& options) const;
  Work SendRecv(absl::Span<const NativeCall> calls, const CallOptions& options);
  absl::StatusOr<BoundPlan> Bind(const CollectiveSpec& spec, const PlanBuffers& buffers, const CallOptions& options);
  absl::StatusOr<BoundPlan> Bind(PlanOfRank plan_of, const PlanBuffers& buffers);
  absl::StatusOr<BoundPlan> Bind(const Strategy& strategy, DType dtype, std::int64_t count, int round,
                                 const PlanBuffers& buffers);
  // Split and Group are defined in groups.cc.
  absl::StatusOr<std::unique_ptr<Impl>> Split(int color, int key);
  absl::StatusOr<std::unique_ptr<Impl>> Group(absl::Span<const Rank> members, absl::string_view name);
  bool in_forked_child() const { return runtime->engine->in_forked_child(); }
  // Ends the process, and says why, where a bound plan still uses this communicator: the plan's owner would go on with
  // memory that is gone.
  void EndUnlessUnused() const;

  const std::shared_ptr<Runtime> runtime;
  const std::unique_ptr<Channel> channel;
  const std::shared_ptr<Store> store;  // has the keys of this group alone
  PlanOptions plan_options;            // as they are once the communicator has been made
  PlanOptions device_options;          // the same for plans on the memory of a GPU

 private:
  absl::StatusOr<bool> AreOnDevice(absl::Span<const void* const> buffers) const {
    return tutti::AreOnDevice(runtime->device, channel->rank(), buffers);
  }
  // Whether a call is on the memory of a GPU: the same for a call, which may say by its stream what null buffers do not
  // tell. Pointers to no bytes tell nothing.
  absl::StatusOr<bool> IsOnDevice(const void* in, const void* out, const CollectiveSpec& spec,
                                  const CallOptions& options) const;
  // The Work of a call on a GPU that this rank cannot make: see Engine::AbortUnlessInvalid.
  Work NotMade(const absl::Status& error) const;
  // Whether SendRecv may make `calls`.
  absl::Status CheckMessages(absl::Span<const NativeCall> calls, const CallOptions& options) const;
  // The communicator of a new group; `members` are in the order of the group's ranks, and this rank is among them.
  std::unique_ptr<Impl> MakeGroup(const std::vector<GroupMember>& members) const;
  absl::Status CheckPlan(const Schedule& schedule, const Plan& plan, const PlanOptions& options) const;
  bool IsVerifiedExample(const Schedule& schedule, const PlanOptions& options) const;
  // Whether this rank touches no buffers of its peers, and they none of this rank, in the plans that `plan_of` makes,
  // of which `own` is this rank's.
  absl::StatusOr<bool> SharesOnlyScratch(const Plan& own, PlanOfRank plan_of) const;
  // Whether the plans that `plan_of` makes map memory of their own node alone; `own` is this rank's.
  absl::Status CheckNodes(const Plan& own, PlanOfRank plan_of) const;
  // Whether `plan` can run here, on `buffers`.
  absl::Status CheckBinding(const Plan& plan, const PlanBuffers& buffers) const;
  absl::StatusOr<BoundPlan> BindVerified(std::shared_ptr<const Program> program, const PlanBuffers& buffers);
  // The plan of a call, verified.
  absl::StatusOr<Plan> VerifiedPlanFor(const CollectiveSpec& spec, const Schedule& schedule,
                                       const PlanOptions& options) const;
  // The program of a call on the memory of a GPU, verified.
  absl::StatusOr<std::shared_ptr<const Program>> ProgramOnDevice(const CollectiveSpec& spec, const Schedule* wanted);
  // The program of `plan`, which is verified; `plan_of` makes the plans of all ranks.
  absl::StatusOr<std::shared_ptr<const Program>> CompileOnDevice(Plan plan, PlanOfRank plan_of,
                                                                 absl::string_view maker = "");
  // Unimplemented where `plan` has native steps and calls on GPUs are staged.
  absl::Status CheckNativeSteps(const Plan& plan) const;
  // Makes the native transports of the groups that native steps of this rank name, unless an earlier plan has named
  // them. Waits for the other ranks of each group, which come with plans that name it, too. An error ends the
  // communicator. `plans` are those of all ranks. Defined in native_groups.cc.
  absl::Status MakeNativeGroups(absl::Span<const Plan> plans);
  absl::StatusOr<BoundPlan> BindOnDevice(Plan plan, PlanOfRank plan_of, const PlanBuffers& buffers,
                                         absl::string_view maker = "");
  // The program that a call runs, verified. Where `wanted` is null, the program may have a second program for buffers
  // that peers cannot map.
  absl::StatusOr<std::shared_ptr<const Program>> ProgramFor(const CollectiveSpec& spec, const Schedule* wanted) const;
  absl::StatusOr<tutti::Call*> IdleCallFor(const CollectiveSpec& spec, const Schedule* schedule, bool on_device);

  // The groups that have a native transport. Held while one is made, so that groups come in one order.
  Mutex native_groups_mutex_;
  absl::flat_hash_set<std::vector<Rank>> native_groups_ TUTTI_GUARDED_BY(native_groups_mutex_);
  const std::shared_ptr<std::atomic<int>> bound_plans_ = std::make_shared<std::atomic<int>>(0);
  PlanCache cache_;
  const std::shared_ptr<IdleCalls> idle_message_calls_ = std::make_shared<IdleCalls>();
  std::shared_ptr<CallPool> message_calls_;  // of SendRecv; null where this rank has no GPU
  // The record of PlanVerifier, mutable because const calls add to it.
  mutable PlanVerifier::KindsMade kinds_made_;
  // The all_to_all_v schedules that were verified with example counts, with plan_options or device_options; plans of
  // such a schedule with other counts are not verified again.
  mutable Mutex examples_mutex_;
  mutable absl::flat_hash_set<std::pair<const Schedule*, const PlanOptions*>> verified_examples_
      TUTTI_GUARDED_BY(examples_mutex_);
};

}  // namespace tutti

#endif  // TUTTI_COMM_COMMUNICATOR_IMPL_H_
