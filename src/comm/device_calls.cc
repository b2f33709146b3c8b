// Calls on the memory of a GPU: which these are, and their programs for streams.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "comm/communicator_impl.h"
#include "plan/stream_order.h"
#include "tutti/print.h"

namespace tutti {
namespace {

// What NCCL does not do with a message of its own, whose two ends meet by their order alone.
absl::Status CheckMessage(const CollectiveSpec& spec, Rank rank) {
  if (!IsPointToPoint(spec.collective)) return absl::OkStatus();
  if (spec.root == kAnySource) {
    return absl::UnimplementedError(
        absl::StrCat("rank ", rank, ": ", ToString(spec),
                     ": NCCL receives from a certain rank only: name the sender, or receive in memory of the host"));
  }
  if (spec.root != rank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", rank, ": ", ToString(spec),
      " is to the rank itself, and on the memory of a GPU would wait for a call that comes behind it: give "
      "Communicator::SendRecv both, or copy"));
}

}  // namespace

absl::StatusOr<bool> Communicator::Impl::IsOnDevice(const void* in, const void* out, const CollectiveSpec& spec,
                                                    const CallOptions& options) const {
  if (!runtime->device.has_value()) return false;
  if (in == nullptr && out == nullptr) return options.stream != nullptr && spec.collective != Collective::kBarrier;
  absl::StatusOr<bool> found = AreOnDevice({in, out});
  if (found.ok() || in == nullptr || out == nullptr) return found;
  // A pointer to no bytes, such as that of a rank which is not the root, leads nowhere.
  const Rank rank = channel->rank();
  if (!Validate(spec, rank, channel->size()).ok()) return found;
  const BufferBytes bytes = BuffersOf(spec, rank, channel->size());
  if (bytes.in == 0) return AreOnDevice({out});
  if (bytes.out == 0) return AreOnDevice({in});
  return found;
}

absl::StatusOr<bool> AreOnDevice(const std::optional<StreamDevice>& device, Rank rank,
                                 absl::Span<const void* const> buffers) {
  if (!device.has_value()) return false;
  const CudaRuntime& cuda = *device->cuda;
  const CudaDeviceScope scope(cuda, device->index);  // also to ask makes a context
  int on_device = 0;
  int on_host = 0;
  const void* last = nullptr;
  for (const void* const memory : buffers) {
    if (memory == std::exchange(last, memory) || memory == nullptr) continue;  // in place: asked already
    CudaPointer found;
    CudaError error = scope.error();
    if (error == kCudaSuccess) error = cuda.pointer(&found, memory);
    if (error != kCudaSuccess) {
      return CudaStatus(cuda, error, absl::StrCat("rank ", rank, ": asking what memory a buffer of the call is"));
    }
    using Kind = CudaPointer::Kind;
    ++(found.kind == Kind::kDevice || found.kind == Kind::kManaged ? on_device : on_host);
  }
  if (on_device > 0 && on_host > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank,
                     ": one buffer of the call is memory of a GPU and another is memory of "
                     "the host; give memory of one kind"));
  }
  return on_device > 0;
}

absl::StatusOr<std::shared_ptr<const Program>> Communicator::Impl::ProgramOnDevice(const CollectiveSpec& spec,
                                                                                   const Schedule* wanted) {
  if (absl::Status status = CheckMessage(spec, channel->rank()); !status.ok()) return status;
  absl::StatusOr<const Schedule*> schedule = ScheduleFor(spec, wanted, /*private_buffers=*/false, device_options);
  if (!schedule.ok()) return schedule.status();
  absl::StatusOr<Plan> plan = VerifiedPlanFor(spec, **schedule, device_options);
  if (!plan.ok()) return plan.status();
  if (spec.collective == Collective::kAllToAllV || IsPointToPoint(spec.collective)) {
    // Here a rank does not know what the others call.
    absl::StatusOr<StreamOrder> order = StreamOrderAlone(*plan);
    if (!order.ok()) return order.status();
    return CompileForStream(*std::move(plan), *std::move(order));
  }
  return CompileOnDevice(*std::move(plan),
                         [&](Rank rank) { return BuildPlan(**schedule, spec, rank, channel->size(), device_options); });
}

absl::StatusOr<std::shared_ptr<const Program>> Communicator::Impl::CompileOnDevice(Plan plan, PlanOfRank plan_of,
                                                                                   absl::string_view maker) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < channel->size(); ++rank) {
    absl::StatusOr<Plan> one = plan_of(rank);
    if (!one.ok()) return one.status();
    plans.push_back(*std::move(one));
  }
  absl::StatusOr<std::vector<StreamOrder>> orders = StreamOrdersOf(plans);
  if (!orders.ok()) return orders.status();
  if (absl::Status status = CheckNativeSteps(plan); !status.ok()) return status;
  if (absl::Status made = MakeNativeGroups(plans); !made.ok()) return made;
  return CompileForStream(std::move(plan), std::move((*orders)[static_cast<std::size_t>(channel->rank())]), maker);
}

absl::Status Communicator::Impl::CheckNativeSteps(const Plan& plan) const {
  const auto is_native = [](const Step& step) { return step.kind == StepKind::kNative; };
  const auto native = std::find_if(plan.steps.begin(), plan.steps.end(), is_native);
  if (!runtime->gpu_transport.staged || native == plan.steps.end()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "rank ", plan.rank, ": ", plan.name, " cannot run: step ", native - plan.steps.begin(), " (",
      ToText(plan, *native), ") needs NCCL, and calls on GPUs are staged here (", runtime->gpu_transport.reason, ")"));
}

absl::StatusOr<BoundPlan> Communicator::Impl::BindOnDevice(Plan plan, PlanOfRank plan_of, const PlanBuffers& buffers,
                                                           absl::string_view maker) {
  absl::StatusOr<std::shared_ptr<const Program>> program = CompileOnDevice(std::move(plan), plan_of, maker);
  if (!program.ok()) return program.status();
  return BindVerified(*std::move(program), buffers);
}

Work Communicator::Impl::SendRecv(absl::Span<const NativeCall> calls, const CallOptions& options) {
  if (in_forked_child()) return Work(NotInForkedChild(channel->rank()));
  if (absl::Status status = CheckMessages(calls, options); !status.ok()) return Work(status);
  tutti::Call* const call = message_calls_->Take();
  absl::Status status = call->SetBuffers(nullptr, nullptr, nullptr);
  if (status.ok()) status = call->run().SetMessages(calls);
  if (status.ok()) return Work(call, call->Submit(options));
  call->Release();
  return NotMade(status);
}

absl::Status Communicator::Impl::CheckMessages(absl::Span<const NativeCall> calls, const CallOptions& options) const {
  const Rank rank = channel->rank();
  if (!runtime->device.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat("SendRecv of rank ", rank,
                     ": the communicator has no GPU (CommunicatorOptions::cuda_device): on memory of the host, Sends "
                     "and Recvs that are made one by one travel at the same time"));
  }
  std::vector<std::int64_t> sent;  // bytes of the messages to this rank itself
  std::vector<std::int64_t> received;
  for (const NativeCall& call : calls) {
    const CollectiveSpec spec = {
        .collective = call.collective, .dtype = call.dtype, .count = call.count, .root = call.root};
    const std::string who = absl::StrCat("SendRecv of rank ", rank, ": ");
    if (!IsPointToPoint(call.collective)) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, "collective ", Name(call.collective), " must be send or recv"));
    }
    if (absl::Status status = Validate(spec, rank, channel->size()); !status.ok()) return status;
    if (absl::Status status = CheckCallOptions(options, spec, /*on_device=*/true, rank); !status.ok()) return status;
    const bool sends = call.collective == Collective::kSend;
    if (call.root == rank) {
      (sends ? sent : received).push_back(call.count * SizeOf(call.dtype));
    } else if (absl::Status status = CheckMessage(spec, rank); !status.ok()) {
      return status;
    }
    const void* const memory = sends ? call.src : call.dst;
    if (memory == nullptr && call.count > 0) {
      return absl::InvalidArgumentError(absl::StrCat(who, ToString(spec), ": ", sends ? "src" : "dst", " is null"));
    }
  }
  if (sent == received) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("SendRecv of rank ", rank, ": the rank sends itself ", sent.size(),
                                                 " messages and receives ", received.size(),
                                                 " from itself: both must be as many, of equal lengths in this order"));
}

}  // namespace tutti
