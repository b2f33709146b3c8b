// Buffers of a module, such as the running statistics of BatchNorm, and the ways in which ranks keep them equal.
#ifndef TUTTI_TORCH_BUFFERS_H_
#define TUTTI_TORCH_BUFFERS_H_

#include <ATen/MemoryOverlap.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

// Unimplemented, with the reason, where ranks cannot write one another's values to `tensor` of a model on `device`.
// `name`: with its kind, as in "buffer running_mean".
inline absl::Status CheckWritable(const std::string& name, const torch::Tensor& tensor, torch::Device device) {
  if (!(tensor.device().is_cpu() || tensor.device() == device) || tensor.layout() != torch::kStrided) {
    const std::string where = device.is_cpu() ? "" : c10::str(" or ", device);
    return absl::UnimplementedError(c10::str(name, " is a ", tensor.layout(), " tensor on ", tensor.device(),
                                             "; supported: dense tensors on the CPU", where));
  }
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    return absl::UnimplementedError(absl::StrCat("elements of ", name,
                                                 " share memory, as those of a tensor that expand() returned: register "
                                                 "its clone()"));
  }
  return absl::OkStatus();
}

// The type, the shape and the kind of device of a tensor, which must be equal on ranks that write one another's values
// to that tensor.
inline std::string CommonOf(const torch::Tensor& tensor) {
  return absl::StrCat(c10::toString(tensor.scalar_type()), " ", absl::StrJoin(tensor.sizes(), "x"),
                      tensor.is_cpu() ? "" : " on a GPU");
}

// The buffers of one call.
struct BufferGroup {
  std::vector<torch::Tensor> buffers;
  std::size_t bytes = 0;
};

// Whether `buffer` may travel in the call of `group`, by way of a copy. A copy of much memory costs more than a call,
// so groups are small, and a large buffer has a call of its own, where it lies; so has one of quantized elements, of
// which torch::empty makes no tensor.
inline bool MayJoin(const BufferGroup& group, const torch::Tensor& buffer) {
  constexpr std::size_t kMaxCopied = std::size_t{1} << 20;
  const torch::Tensor& first = group.buffers[0];
  return group.bytes + buffer.nbytes() <= kMaxCopied && !buffer.is_quantized() &&
         first.scalar_type() == buffer.scalar_type() && first.device() == buffer.device();
}

// The buffers of each call: those of one type on one device travel together. The ranks have agreed on the order, types
// and shapes of their buffers, and so get the same groups.
inline std::vector<BufferGroup> GroupsOf(const std::vector<NamedTensor>& buffers) {
  std::vector<BufferGroup> groups;
  for (const auto& [name, buffer] : buffers) {
    if (buffer.numel() == 0) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&buffer = buffer](const BufferGroup& other) { return MayJoin(other, buffer); });
    if (group == groups.end()) group = groups.emplace(groups.end());
    group->buffers.push_back(buffer);
    group->bytes += buffer.nbytes();
  }
  return groups;
}

// Makes the elements of `flat`, a plain tensor, equal as `mode` says.
inline absl::Status SynchronizeElements(Communicator& communicator, CallOptions call, Buffers mode,
                                        const torch::Tensor& flat) {
  call.stream = CurrentStreamHandle(flat.device());
  const absl::StatusOr<DType> dtype = DTypeOf(flat.scalar_type());
  Work work;
  if (mode == Buffers::kAverage && dtype.ok()) {
    work = communicator.AllReduce(flat.data_ptr(), flat.data_ptr(), flat.numel(), *dtype, ReduceOp::kAvg, call);
  } else {
    work = communicator.Broadcast(flat.data_ptr(), flat.data_ptr(), static_cast<std::int64_t>(flat.nbytes()),
                                  DType::kU8, /*root=*/0, call);
  }
  return flat.is_cpu() ? work.Wait() : work.WaitOnStream(call.stream);
}

// Makes one buffer equal, where it lies if it is plain.
inline absl::Status SynchronizeAlone(Communicator& communicator, const CallOptions& call, Buffers mode,
                                     const torch::Tensor& buffer) {
  const torch::Tensor flat = Plain(buffer);
  absl::Status status = SynchronizeElements(communicator, call, mode, flat);
  if (status.ok() && !flat.is_same(buffer)) buffer.variable_data().copy_(flat);
  return status;
}

// Makes the buffers of one group equal, by way of one tensor that holds them side by side.
inline absl::Status SynchronizeTogether(Communicator& communicator, const CallOptions& call, Buffers mode,
                                        const std::vector<torch::Tensor>& group) {
  std::int64_t elements = 0;
  for (const torch::Tensor& buffer : group) elements += buffer.numel();
  const torch::Tensor flat = torch::empty({elements}, group[0].options());
  std::vector<torch::Tensor> parts;
  std::int64_t begin = 0;
  for (const torch::Tensor& buffer : group) {
    parts.push_back(flat.narrow(0, begin, buffer.numel()).view(buffer.sizes()));
    parts.back().copy_(buffer);
    begin += buffer.numel();
  }
  absl::Status status = SynchronizeElements(communicator, call, mode, flat);
  // Torch does not count writes by way of variable_data(), so a backward() whose graph has saved a buffer, as that of
  // BatchNorm has, may come after them.
  for (std::size_t i = 0; status.ok() && i < group.size(); ++i) group[i].variable_data().copy_(parts[i]);
  return status;
}

// Makes `buffers` equal as `mode` says; `call` holds the options of each call. Collective. On a GPU the current stream
// waits, and so does whatever takes the memory of temporary tensors from the allocator, which belongs to that stream.
inline absl::Status SynchronizeBuffers(Communicator& communicator, const CallOptions& call, Buffers mode,
                                       const std::vector<NamedTensor>& buffers) {
  if (mode == Buffers::kLeave || communicator.size() == 1) return absl::OkStatus();
  torch::NoGradGuard no_grad;
  for (const BufferGroup& group : GroupsOf(buffers)) {
    absl::Status status = group.buffers.size() == 1 ? SynchronizeAlone(communicator, call, mode, group.buffers[0])
                                                    : SynchronizeTogether(communicator, call, mode, group.buffers);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_BUFFERS_H_
