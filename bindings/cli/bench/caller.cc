#include "bindings/cli/bench/caller.h"

#include "absl/container/inlined_vector.h"

namespace tutti::cli {
namespace {

// The calls of one rank on the memory of a GPU; for send_recv, both messages, which travel together.
absl::InlinedVector<NativeCall, 2> NativeCallsOf(const Traffic& traffic, double factor, const std::byte* in,
                                                 std::byte* out) {
  const CollectiveSpec& spec = traffic.spec;
  const NativeCall call = {.collective = spec.collective,
                           .dtype = spec.dtype,
                           .op = spec.op,
                           .count = spec.count,
                           .root = spec.root,
                           .factor = factor,
                           .src = in,
                           .dst = out};
  if (spec.collective != Collective::kSend) return {call};
  NativeCall recv = call;
  recv.collective = Collective::kRecv;
  recv.root = traffic.previous();
  return {call, recv};
}

}  // namespace

absl::Status TuttiCaller::Enqueue(const std::byte* in, std::byte* out) {
  const CollectiveSpec& spec = traffic_.spec;
  const bool on_device = kind_ == MemoryKind::kDevice;
  if (spec.collective != Collective::kSend) {
    works_.push_back(communicator_.Call(spec, in, out, options_));
  } else if (on_device) {
    works_.push_back(communicator_.SendRecv(NativeCallsOf(traffic_, options_.factor, in, out), options_));
  } else {
    works_.push_back(communicator_.Recv(out, spec.count, spec.dtype, traffic_.previous(), {.caller_drives = true}));
    works_.push_back(communicator_.Send(in, spec.count, spec.dtype, spec.root, options_));
  }
  // The call waits for the default stream, and the default stream for the call, as in a program that uses the result.
  return on_device ? works_.back().WaitOnStream(nullptr) : absl::OkStatus();
}

absl::Status TuttiCaller::Wait() {
  absl::Status first;
  for (Work& work : works_) first.Update(work.Wait());
  works_.clear();
  return first;
}

absl::Status CodecCaller::Enqueue(const std::byte* /*in*/, std::byte* /*out*/) {
  work_ = plan_.Start({.caller_drives = true, .draw = ++draw_});
  return kind_ == MemoryKind::kDevice ? work_.WaitOnStream(nullptr) : absl::OkStatus();
}

absl::Status RawNcclCaller::Enqueue(const std::byte* in, std::byte* out) {
  return nccl_.Enqueue(NativeCallsOf(traffic_, factor_, in, out));
}

}  // namespace tutti::cli
