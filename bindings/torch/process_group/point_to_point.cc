#include <exception>
#include <utility>

#include "bindings/torch/process_group/process_group_tutti.h"
#include "bindings/torch/process_group/tensors.h"

namespace tutti::dist {
namespace {

void CheckTag(const char* call, int tag) {
  TORCH_CHECK_VALUE(tag >= 0 && tag <= kMaxTag, "tutti: ", call, ": tag ", tag, "; tags are 0 to ", kMaxTag);
}

}  // namespace

Calls::Prepared ProcessGroupTutti::Message(Collective direction, const at::Tensor& memory, Rank peer, int tag) const {
  CallOptions options = OptionsFor(::c10d::kUnsetTimeout, true);
  options.tag = tag;
  const CollectiveSpec spec = {
      .collective = direction, .dtype = DType::kU8, .count = static_cast<std::int64_t>(memory.nbytes()), .root = peer};
  const bool sends = direction == Collective::kSend;
  return {.spec = spec,
          .in = sends ? memory.const_data_ptr() : nullptr,
          .out = sends ? nullptr : memory.mutable_data_ptr(),
          .options = options,
          .storages = {memory.storage()}};
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::OrErrorAtEndOfBatch(absl::FunctionRef<WorkPtr()> start) {
  try {
    return start();
  } catch (...) {
    if (!KeepForEndOfBatch(std::current_exception())) throw;
  }
  return nullptr;
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::send(Tensors& tensors, int to, int tag) {
  return OrErrorAtEndOfBatch([&] {
    const at::Tensor& tensor = OnlyTensor("send", "tensor", tensors);
    CheckRank("send", "dst", to);
    CheckTag("send", tag);
    Calls calls;
    calls.held.push_back(Plain(tensor));
    calls.prepared.push_back(Message(Collective::kSend, calls.held[0], to, tag));
    return Launched(std::move(calls), ::c10d::OpType::SEND, "tutti:send");
  });
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::recv(Tensors& tensors, int from, int tag) {
  return OrErrorAtEndOfBatch([&] {
    const at::Tensor& tensor = OnlyTensor("recv", "tensor", tensors);
    if (from != kAnySource) CheckRank("recv", "src", from);
    CheckTag("recv", tag);
    const at::Tensor room = PlainRoomFor(tensor);
    Calls calls = {.outputs = {tensor}};
    calls.prepared.push_back(Message(Collective::kRecv, room, from, tag));
    if (!room.is_same(tensor)) {
      CheckOutput(tensor);
      calls.held.push_back(room);
      calls.finish = [room, alias = AliasOf(tensor)] { CopyQuietly(room, alias); };
    }
    return Launched(std::move(calls), from == kAnySource ? ::c10d::OpType::RECVANYSOURCE : ::c10d::OpType::RECV,
                    from == kAnySource ? "tutti:recv_any_source" : "tutti:recv");
  });
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::recvAnysource(Tensors& tensors, int tag) {
  return recv(tensors, kAnySource, tag);
}

}  // namespace tutti::dist
