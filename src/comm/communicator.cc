#include "tutti/communicator.h"

#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/fork.h"
#include "comm/communicator_impl.h"
#include "comm/link_measurement.h"
#include "comm/transport_choice.h"
#include "memory/device_memory.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

absl::Status CheckStore(const Bootstrap& bootstrap) {
  if (bootstrap.store != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("Communicator::Create of rank ", bootstrap.identity.rank,
                                                 ": bootstrap.store is null; it must be a store that all ranks share"));
}

// The offset, by rank, of the world's control block in the region of each rank, which is the first block that the rank
// has opened. No rank signals to another before this exchange has ended, when the blocks of both are ready. A rank that
// has no `own` offset, because it could open no block, takes part all the same: the others would wait for it.
absl::StatusOr<std::vector<std::int64_t>> ExchangeOffsets(Store& store, Rank rank, int size,
                                                          const absl::StatusOr<std::int64_t>& own,
                                                          absl::Time deadline) {
  const absl::StatusOr<std::vector<std::string>> texts =
      ExchangeBlobs(store, "control", rank, size, own.ok() ? absl::StrCat(*own) : "", deadline);
  if (!own.ok()) return own.status();
  if (!texts.ok()) return texts.status();
  std::vector<std::int64_t> offsets(texts->size());
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if ((*texts)[i].empty()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "rank ", i, " has no room in its arena for a communicator; set TUTTI_ARENA_BYTES to a larger size"));
    }
    if (!absl::SimpleAtoi((*texts)[i], &offsets[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat("control: rank ", i, " sent \"", absl::CHexEscape((*texts)[i]), "\" where an offset belongs"));
    }
  }
  return offsets;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(const Bootstrap& bootstrap,
                                                                   const CommunicatorOptions& options) {
  if (absl::Status status = CheckStore(bootstrap); !status.ok()) return status;
  const absl::StatusOr<Config>& config = LoadConfig();
  if (!config.ok()) return FailSetUp(bootstrap, config.status());
  absl::StatusOr<std::unique_ptr<Transport>> transport =
      ChooseTransport(bootstrap, NanosIn(options.timeout.value_or(config->timeout)));
  if (!transport.ok()) return FailAgreement(bootstrap, transport.status());
  return Create(bootstrap, *std::move(transport), options);
}

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

// In a forked child the communicator is left alone: the child has no engine thread to end, and its peers are the
// parent's.
Communicator::~Communicator() {
  if (impl_->in_forked_child()) {
    (void)impl_.release();
  } else {
    impl_->EndUnlessUnused();
  }
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(const Bootstrap& bootstrap,
                                                                   std::unique_ptr<Transport> transport,
                                                                   const CommunicatorOptions& options) {
  if (absl::Status status = CheckStore(bootstrap); !status.ok()) return status;
  if (transport == nullptr) {
    return FailSetUp(bootstrap, absl::InvalidArgumentError(
                                    absl::StrCat("Communicator::Create of rank ", bootstrap.identity.rank,
                                                 ": transport is null; expected one that is not connected yet")));
  }
  absl::StatusOr<std::shared_ptr<Runtime>> runtime = StartRuntime(bootstrap, std::move(transport), options);
  if (!runtime.ok()) return runtime.status();
  const int size = bootstrap.identity.size;
  const absl::StatusOr<ControlBlock*> control = (*runtime)->blocks->Open();
  const absl::StatusOr<std::int64_t> offset =
      control.ok() ? absl::StatusOr<std::int64_t>((*runtime)->arena->OffsetOf(*control)) : control.status();
  absl::StatusOr<std::vector<std::int64_t>> offsets =
      ExchangeOffsets(*bootstrap.store, bootstrap.identity.rank, size, offset, absl::Now() + (*runtime)->timeout);
  if (!offsets.ok()) {
    (*runtime)->engine->Stop(offsets.status());  // otherwise peers would hear a goodbye and not the error
    return offsets.status();
  }
  std::vector<GroupMember> world;
  world.reserve(size);
  for (Rank rank = 0; rank < size; ++rank) {
    world.push_back({.world_rank = rank, .channel = 0, .offset = (*offsets)[rank]});
  }
  std::unique_ptr<Channel> channel = OpenChannel(**runtime, bootstrap.identity.rank, world);
  const absl::Status on_device = OpenOnDevice(**runtime, *channel, *bootstrap.store);
  auto communicator =
      absl::WrapUnique(new Communicator(std::make_unique<Impl>(*runtime, std::move(channel), bootstrap.store)));
  if (!on_device.ok()) {
    communicator->Abort(on_device);
    return on_device;
  }
  if (const std::optional<bool> asked = (*runtime)->measures_links; asked.value_or(true)) {
    const absl::StatusOr<CostModel> measured =
        MeasureLinks(*communicator, *(*runtime)->cost_model, /*within_nodes=*/asked.has_value());
    if (!measured.ok()) return measured.status();
    (*runtime)->cost_model = std::make_shared<const CostModel>(*measured);
    communicator->impl_->plan_options.cost_model = (*runtime)->cost_model;
    communicator->impl_->device_options = PlanOptionsOnDevice(**runtime, communicator->impl_->plan_options);
  }
  return communicator;
}

Rank Communicator::rank() const { return impl_->channel->rank(); }
int Communicator::size() const { return impl_->channel->size(); }
absl::string_view Communicator::transport() const { return impl_->runtime->transport->name(); }
const PlanOptions& Communicator::plan_options(MemoryKind kind) const {
  return kind == MemoryKind::kDevice ? impl_->device_options : impl_->plan_options;
}
std::optional<int> Communicator::cuda_device() const {
  const std::optional<StreamDevice>& device = impl_->runtime->device;
  return device.has_value() ? std::optional(device->index) : std::nullopt;
}
std::string Communicator::gpu_transport() const {
  const GpuTransportChoice& choice = impl_->runtime->gpu_transport;
  if (!impl_->runtime->device.has_value()) return "";
  return absl::StrCat(choice.staged ? "staged" : "nccl", ": ", choice.reason);
}
Store& Communicator::store() const { return *impl_->store; }
absl::Duration Communicator::timeout() const { return impl_->runtime->timeout; }
absl::StatusOr<Buffer> Communicator::Allocate(std::int64_t bytes, MemoryKind kind) {
  if (impl_->in_forked_child()) return NotInForkedChild(rank());
  if (kind == MemoryKind::kHost) return impl_->runtime->arena->Allocate(bytes);
  const std::optional<StreamDevice>& device = impl_->runtime->device;
  if (device.has_value()) return AllocateOnDevice(*device->cuda, device->index, bytes);
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", rank(), ": the communicator has no GPU to allocate memory on; set CommunicatorOptions::cuda_device"));
}
void Communicator::Abort(const absl::Status& cause) {
  if (!impl_->in_forked_child()) impl_->runtime->engine->Abort(*impl_->channel, cause);
}
absl::Status Communicator::status() const {
  return impl_->in_forked_child() ? NotInForkedChild(rank()) : impl_->channel->sticky().Get();
}

Counters Communicator::counters() const {
  const Engine& engine = *impl_->runtime->engine;
  const ThreadTime::Processor processor = engine.thread_time().processor();
  return {.calls = engine.calls(),
          .wire_bytes = engine.wire_bytes(),
          .staged_bytes = engine.staged_bytes(),
          .engine_wall = engine.thread_time().wall(),
          .engine_cpu = processor.used,
          .engine_waiting = processor.waiting};
}

Work Communicator::AllReduce(const void* in, void* out, std::int64_t count, DType dtype, ReduceOp op,
                             const CallOptions& options) {
  return Call({.collective = Collective::kAllReduce, .dtype = dtype, .op = op, .count = count}, in, out, options);
}

Work Communicator::ReduceScatter(const void* in, void* out, std::int64_t count, DType dtype, ReduceOp op,
                                 const CallOptions& options) {
  return Call({.collective = Collective::kReduceScatter, .dtype = dtype, .op = op, .count = count}, in, out, options);
}

Work Communicator::AllGather(const void* in, void* out, std::int64_t count, DType dtype, const CallOptions& options) {
  return Call({.collective = Collective::kAllGather, .dtype = dtype, .count = count}, in, out, options);
}

Work Communicator::Broadcast(const void* in, void* out, std::int64_t count, DType dtype, Rank root,
                             const CallOptions& options) {
  return Call({.collective = Collective::kBroadcast, .dtype = dtype, .count = count, .root = root}, in, out, options);
}

Work Communicator::Reduce(const void* in, void* out, std::int64_t count, DType dtype, ReduceOp op, Rank root,
                          const CallOptions& options) {
  return Call({.collective = Collective::kReduce, .dtype = dtype, .op = op, .count = count, .root = root}, in, out,
              options);
}

Work Communicator::Gather(const void* in, void* out, std::int64_t count, DType dtype, Rank root,
                          const CallOptions& options) {
  return Call({.collective = Collective::kGather, .dtype = dtype, .count = count, .root = root}, in, out, options);
}

Work Communicator::Scatter(const void* in, void* out, std::int64_t count, DType dtype, Rank root,
                           const CallOptions& options) {
  return Call({.collective = Collective::kScatter, .dtype = dtype, .count = count, .root = root}, in, out, options);
}

Work Communicator::AllToAll(const void* in, void* out, std::int64_t count, DType dtype, const CallOptions& options) {
  return Call({.collective = Collective::kAllToAll, .dtype = dtype, .count = count}, in, out, options);
}

Work Communicator::AllToAllV(const void* in, absl::Span<const std::int64_t> send_counts, void* out,
                             absl::Span<const std::int64_t> recv_counts, DType dtype, const CallOptions& options) {
  return Call({.collective = Collective::kAllToAllV,
               .dtype = dtype,
               .send_counts = {send_counts.begin(), send_counts.end()},
               .recv_counts = {recv_counts.begin(), recv_counts.end()}},
              in, out, options);
}

Work Communicator::Barrier(const CallOptions& options) {
  return Call({.collective = Collective::kBarrier}, nullptr, nullptr, options);
}

Work Communicator::Send(const void* in, std::int64_t count, DType dtype, Rank to, const CallOptions& options) {
  return Call({.collective = Collective::kSend, .dtype = dtype, .count = count, .root = to}, in, nullptr, options);
}

Work Communicator::Recv(void* out, std::int64_t count, DType dtype, Rank from, const CallOptions& options) {
  return Call({.collective = Collective::kRecv, .dtype = dtype, .count = count, .root = from}, nullptr, out, options);
}

Work Communicator::SendRecv(absl::Span<const NativeCall> calls, const CallOptions& options) {
  return impl_->SendRecv(calls, options);
}

Work Communicator::Call(const CollectiveSpec& spec, const void* in, void* out, const CallOptions& options) {
  return impl_->Call(spec, in, out, options);
}

absl::StatusOr<Plan> Communicator::PlanFor(const CollectiveSpec& spec, const CallOptions& options, bool private_buffers,
                                           MemoryKind kind) const {
  return impl_->PlanFor(spec, options.schedule, private_buffers, plan_options(kind));
}

std::string Communicator::Explain(const CollectiveSpec& spec) const {
  if (absl::Status status = Validate(spec, rank(), size()); !status.ok()) return std::string(status.message());
  constexpr absl::string_view kWhere = "TUTTI_SCHEDULE or CommunicatorOptions::schedules";
  if (const Schedule* const named = impl_->ConfiguredFor(spec.collective, impl_->plan_options); named != nullptr) {
    return absl::StrCat(ToString(spec), " on ", size(), " ranks: ", named->name, ", as ", kWhere, " says\n");
  }
  absl::StatusOr<Selection> selection = SelectSchedule(spec, size(), plan_options());
  if (!selection.ok()) return std::string(selection.status().message());
  std::string text =
      absl::StrCat(ToString(spec), " on ", size(), " ranks: ", selection->schedule->name, "\n", selection->reason());
  const absl::StatusOr<const Schedule*> other =
      impl_->ScheduleFor(spec, nullptr, /*private_buffers=*/true, impl_->plan_options);
  if (other.ok() && *other != selection->schedule) {
    absl::StrAppend(&text, "for buffers of any rank that peers cannot map: ", (*other)->name, "\n");
  }
  if (const auto on_gpus = impl_->runtime->schedules.find(spec.collective);
      on_gpus != impl_->runtime->schedules.end()) {
    absl::StrAppend(&text, on_gpus->second->name, ", which ", kWhere, " names, serves memory of GPUs alone\n");
  }
  return text;
}

absl::StatusOr<BoundPlan> Communicator::Bind(const CollectiveSpec& spec, const PlanBuffers& buffers,
                                             const CallOptions& options) {
  return impl_->Bind(spec, buffers, options);
}

absl::StatusOr<BoundPlan> Communicator::Bind(PlanOfRank plan_of, const PlanBuffers& buffers) {
  return impl_->Bind(plan_of, buffers);
}

absl::StatusOr<BoundPlan> Communicator::Bind(const Strategy& strategy, DType dtype, std::int64_t count, int round,
                                             const PlanBuffers& buffers) {
  return impl_->Bind(strategy, dtype, count, round, buffers);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Group(absl::Span<const Rank> members,
                                                                  absl::string_view name) {
  absl::StatusOr<std::unique_ptr<Impl>> impl = impl_->Group(members, name);
  if (!impl.ok()) return impl.status();
  return absl::WrapUnique(new Communicator(*std::move(impl)));
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Split(int color, int key) {
  absl::StatusOr<std::unique_ptr<Impl>> impl = impl_->Split(color, key);
  if (!impl.ok()) return impl.status();
  if (*impl == nullptr) return nullptr;
  return std::unique_ptr<Communicator>(new Communicator(*std::move(impl)));
}

}  // namespace tutti
