#include "bindings/cli/bench_caller.h"

#include "absl/types/span.h"

namespace tutti::cli {

absl::Status TuttiCaller::Enqueue(const std::byte* in, std::byte* out) {
  const CollectiveSpec& spec = traffic_.spec;
  if (spec.collective == Collective::kSend) {
    // A rank that sends and receives on one stream needs both in one group, which Send and Recv are not.
    if (kind_ == MemoryKind::kDevice) return absl::UnimplementedError("send_recv is not measured on GPUs yet");
    const Rank from = (traffic_.rank + traffic_.size - 1) % traffic_.size;
    works_.push_back(communicator_.Recv(out, spec.count, spec.dtype, from, {.caller_drives = true}));
    works_.push_back(communicator_.Send(in, spec.count, spec.dtype, spec.root, options_));
    return absl::OkStatus();
  }
  works_.push_back(communicator_.Call(spec, in, out, options_));
  // The call waits for the default stream, and the default stream for the call, as in a program that uses the result.
  return kind_ == MemoryKind::kDevice ? works_.back().WaitOnStream(nullptr) : absl::OkStatus();
}

absl::Status TuttiCaller::Wait() {
  absl::Status first;
  for (Work& work : works_) first.Update(work.Wait());
  works_.clear();
  return first;
}

absl::Status RawNcclCaller::Enqueue(const std::byte* in, std::byte* out) {
  const CollectiveSpec& spec = traffic_.spec;
  const NativeCall call = {.collective = spec.collective,
                           .dtype = spec.dtype,
                           .op = spec.op,
                           .count = spec.count,
                           .root = spec.root,
                           .factor = factor_,
                           .src = in,
                           .dst = out};
  return nccl_.Enqueue(absl::MakeConstSpan(&call, 1));
}

}  // namespace tutti::cli
