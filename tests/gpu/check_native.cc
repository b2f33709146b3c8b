// NCCL with one rank, without a communicator of Tutti's above it: those of one rank need no NCCL.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/gpu/expected_on_gpu.h"
#include "tests/gpu/rank_check.h"
#include "tests/gpu/rank_memory.h"
#include "tests/harness/expected_results.h"

namespace tutti::gpu {
namespace {

absl::Status AwaitEnd(const CudaRuntime& cuda, NativeTransport& native, CUstream_st* stream, absl::Time deadline) {
  while (absl::Now() < deadline) {
    const absl::StatusOr<bool> ready = native.Ready();
    if (!ready.ok()) return ready.status();
    const CudaError error = *ready ? cuda.query_stream(stream) : kCudaNotReady;
    if (error == kCudaSuccess) return absl::OkStatus();
    if (error != kCudaNotReady) return CudaStatus(cuda, error, "the stream");
    absl::SleepFor(absl::Microseconds(50));
  }
  return absl::DeadlineExceededError("the stream has not ended");
}

absl::Status CheckNativeCall(CheckedRank& rank, NativeTransport& native, const RankStream& stream,
                             const CollectiveSpec& spec) {
  const CallMemory memory = MemoryOf(spec, 0, 1);
  const RankMemory in(rank.device, memory.bytes);
  const RankMemory out(rank.device, memory.bytes);
  in.Write(memory.input);
  const NativeCall call = {.collective = spec.collective,
                           .dtype = spec.dtype,
                           .op = spec.op,
                           .count = spec.count,
                           .factor = FactorOf(spec, 0),
                           .src = in.data(),
                           .dst = out.data()};
  if (absl::Status status = native.Enqueue({&call, 1}, stream.get()); !status.ok()) return status;
  if (absl::Status status = AwaitEnd(rank.cuda(), native, stream.get(), absl::Now() + kPatience); !status.ok()) {
    return status;
  }
  return CompareOutput(spec, spec.count, 0, 1, /*by_nccl=*/true, out.Read().data());
}

// Memory that NCCL has been told of works like other memory.
absl::Status CheckRegistered(CheckedRank& rank, NativeTransport& native, const RankStream& stream) {
  constexpr std::int64_t kBytes = 1 << 20;
  const RankMemory memory(rank.device, kBytes);
  const absl::StatusOr<bool> gains = native.Register(memory.data(), kBytes);
  if (!gains.ok()) return gains.status();
  rank.note(absl::StrCat("registering memory ", *gains ? "is done" : "gains nothing"));
  const std::vector<std::byte> ones(kBytes, std::byte{1});
  memory.Write(ones);
  const NativeCall call = {.dtype = DType::kU8, .count = kBytes, .src = memory.data(), .dst = memory.data()};
  absl::Status status = native.Enqueue({&call, 1}, stream.get());
  if (status.ok()) status = AwaitEnd(rank.cuda(), native, stream.get(), absl::Now() + kPatience);
  if (status.ok() && memory.Read() != ones) status = absl::DataLossError("registered memory has other bytes");
  if (*gains) status.Update(native.Unregister(memory.data()));
  return status;
}

absl::Status OneRankOfNccl(CheckedRank& rank) {
  const absl::StatusOr<std::string> id = rank.device.native->NewId();
  if (!id.ok()) return id.status();
  absl::StatusOr<std::unique_ptr<NativeTransport>> native =
      rank.device.native->Connect(*id, 0, 1, rank.device.index, absl::Now() + kPatience);
  if (!native.ok()) return native.status();
  const RankStream stream(rank.device);
  int calls = 0;
  for (const Collective collective : kAllCollectives) {
    if (!HasNativeForm(collective)) continue;
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kAllReduceOps) {
        if (!Reduces(collective) && op != ReduceOp::kSum) continue;
        if (!(*native)->Supports(collective, dtype, op).ok()) continue;
        for (const std::int64_t count : {0, 1, 1000}) {
          const CollectiveSpec spec = {.collective = collective, .dtype = dtype, .op = op, .count = count};
          if (absl::Status status = CheckNativeCall(rank, **native, stream, spec); !status.ok()) return status;
          ++calls;
        }
      }
    }
  }
  rank.note(absl::StrCat(calls, " calls of ", (*native)->name()));
  if (absl::Status status = CheckRegistered(rank, **native, stream); !status.ok()) return status;
  return (*native)->Finalize(absl::Now() + kPatience);
}

}  // namespace

std::vector<RankCheck> NativeChecks() {
  return {{.name = "native",
           .summary = "NCCL with one rank: every collective, type and operator that it serves",
           .sizes = {1},
           .timeout = absl::Seconds(60),
           .run = OneRankOfNccl}};
}

}  // namespace tutti::gpu
