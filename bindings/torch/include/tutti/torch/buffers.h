// Buffers of a module, such as the running statistics of BatchNorm, and the ways in which ranks keep them equal.
#ifndef TUTTI_TORCH_BUFFERS_H_
#define TUTTI_TORCH_BUFFERS_H_

#include <ATen/MemoryOverlap.h>
#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tutti/communicator.h"
#include "tutti/torch/plain.h"
#include "tutti/torch/streams.h"
#include "tutti/torch/tensors.h"

namespace tutti::nn {

// How ranks keep buffers equal, which every rank computes from its own samples. Buffers are made equal in Flush, and in
// every step that all ranks make together. The ranks of `async` step together in its warm-up only: after it every rank
// keeps its own buffers until a Flush.
enum class Buffers : std::uint8_t {
  kBroadcast,  // all ranks take rank 0's, as in torch's DistributedDataParallel
  kAverage,    // floating and complex buffers are averaged, others are taken from rank 0
  kLeave,      // every rank keeps its own, from the beginning; nothing compares them, or asks for equal shapes
};

inline std::string Name(Buffers buffers) {
  switch (buffers) {
    case Buffers::kBroadcast:
      return "kBroadcast";
    case Buffers::kAverage:
      return "kAverage";
    case Buffers::kLeave:
      return "kLeave";
  }
  return "unknown";
}

// Unimplemented, with the reason, where ranks cannot write one another's values to `buffer` of a model on `device`.
inline absl::Status CheckBuffer(const std::string& name, const torch::Tensor& buffer, torch::Device device) {
  if (!(buffer.device().is_cpu() || buffer.device() == device) || buffer.layout() != torch::kStrided) {
    const std::string where = device.is_cpu() ? "" : c10::str(" or ", device);
    return absl::UnimplementedError(c10::str("buffer ", name, " is a ", buffer.layout(), " tensor on ", buffer.device(),
                                             "; supported: dense tensors on the CPU", where));
  }
  if (at::has_internal_overlap(buffer) == at::MemOverlap::Yes) {
    return absl::UnimplementedError(absl::StrCat("elements of buffer ", name,
                                                 " share memory, as those of a tensor that expand() returned: register "
                                                 "its clone()"));
  }
  return absl::OkStatus();
}

// Makes `buffers` equal as `mode` says; `call` holds the options of each call. Collective. On a GPU the current stream
// waits, and so does whatever takes the memory of `flat` from the allocator, which belongs to that stream.
inline absl::Status SynchronizeBuffers(Communicator& communicator, const CallOptions& call, Buffers mode,
                                       const std::vector<NamedTensor>& buffers) {
  if (mode == Buffers::kLeave || communicator.size() == 1) return absl::OkStatus();
  torch::NoGradGuard no_grad;
  for (const auto& [name, buffer] : buffers) {
    torch::Tensor flat = Plain(buffer);
    if (flat.numel() == 0) continue;
    CallOptions own = call;
    own.stream = CurrentStreamHandle(flat.device());
    const absl::StatusOr<DType> dtype = DTypeOf(buffer.scalar_type());
    Work work;
    if (mode == Buffers::kAverage && dtype.ok()) {
      work = communicator.AllReduce(flat.data_ptr(), flat.data_ptr(), flat.numel(), *dtype, ReduceOp::kAvg, own);
    } else {
      work = communicator.Broadcast(flat.data_ptr(), flat.data_ptr(), static_cast<std::int64_t>(flat.nbytes()),
                                    DType::kU8, /*root=*/0, own);
    }
    const absl::Status status = flat.is_cpu() ? work.Wait() : work.WaitOnStream(own.stream);
    if (!status.ok()) return status;
    if (!flat.is_same(buffer)) buffer.copy_(flat);
  }
  return absl::OkStatus();
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_BUFFERS_H_
