#include "transports/nccl/enqueue.h"

#include "transports/nccl/types.h"

namespace tutti::nccl {
namespace {

// The call in NCCL's terms.
struct Arguments {
  const Library& nccl;
  const Comm comm;
  const Rank rank;
  const int size;
  const NativeCall& call;
  CUstream_st* const stream;
  const DataType type;
  const std::size_t count;     // elements of `type`
  const std::ptrdiff_t block;  // bytes of `count` elements
  const std::byte* const src;
  std::byte* const dst;
};

// NCCL reads the operator when the reduction is added to the group, after which the operator may be destroyed.
template <typename Reduce>
Result WithOperator(const Arguments& a, Reduce reduce) {
  if (a.call.op != ReduceOp::kPremulSum) return reduce(OperatorOf(a.call.op));
  double f64 = a.call.factor;
  float f32 = static_cast<float>(a.call.factor);
  void* const factor = a.type == DataType::kFloat64 ? static_cast<void*>(&f64) : &f32;
  RedOp op{};
  const Result created = a.nccl.red_op_create_pre_mul_sum(&op, factor, a.type, ScalarResidence::kHostImmediate, a.comm);
  if (!IsGood(created)) return created;
  const Result reduced = reduce(op);
  const Result destroyed = a.nccl.red_op_destroy(op, a.comm);
  return IsGood(reduced) ? destroyed : reduced;
}

Result SendBlock(const Arguments& a, const std::byte* block, Rank peer) {
  return a.nccl.send(block, a.count, a.type, peer, a.comm, a.stream);
}

Result RecvBlock(const Arguments& a, std::byte* block, Rank peer) {
  return a.nccl.recv(block, a.count, a.type, peer, a.comm, a.stream);
}

// What this rank sends to itself is a copy within the device, which a block in place does not need.
Result GatherBlocks(const Arguments& a) {
  const Rank root = a.call.root;
  const bool in_place = a.rank == root && a.src == a.dst + root * a.block;
  if (!in_place) {
    if (const Result sent = SendBlock(a, a.src, root); !IsGood(sent)) return sent;
  }
  if (a.rank != root) return Result::kSuccess;
  for (Rank peer = 0; peer < a.size; ++peer) {
    if (in_place && peer == root) continue;
    if (const Result received = RecvBlock(a, a.dst + peer * a.block, peer); !IsGood(received)) return received;
  }
  return Result::kSuccess;
}

Result ScatterBlocks(const Arguments& a) {
  const Rank root = a.call.root;
  const bool in_place = a.rank == root && a.dst == a.src + root * a.block;
  for (Rank peer = 0; a.rank == root && peer < a.size; ++peer) {
    if (in_place && peer == root) continue;
    if (const Result sent = SendBlock(a, a.src + peer * a.block, peer); !IsGood(sent)) return sent;
  }
  return in_place ? Result::kSuccess : RecvBlock(a, a.dst, root);
}

Result ExchangeBlocks(const Arguments& a) {
  for (Rank peer = 0; peer < a.size; ++peer) {
    if (const Result sent = SendBlock(a, a.src + peer * a.block, peer); !IsGood(sent)) return sent;
    if (const Result received = RecvBlock(a, a.dst + peer * a.block, peer); !IsGood(received)) return received;
  }
  return Result::kSuccess;
}

}  // namespace

Result EnqueueOne(const Library& nccl, Comm comm, Rank rank, int size, const NativeCall& call, CUstream_st* stream) {
  if (call.count == 0) return Result::kSuccess;  // on all ranks, whose counts agree
  const auto [type, per_element] = ElementsOf(call.dtype);
  const Arguments a = {nccl,
                       comm,
                       rank,
                       size,
                       call,
                       stream,
                       type,
                       static_cast<std::size_t>(call.count * per_element),
                       static_cast<std::ptrdiff_t>(call.count * SizeOf(call.dtype)),
                       static_cast<const std::byte*>(call.src),
                       static_cast<std::byte*>(call.dst)};
  switch (call.collective) {
    case Collective::kAllReduce:
      return WithOperator(a,
                          [&](RedOp op) { return nccl.all_reduce(a.src, a.dst, a.count, a.type, op, comm, stream); });
    case Collective::kReduce:
      return WithOperator(
          a, [&](RedOp op) { return nccl.reduce(a.src, a.dst, a.count, a.type, op, call.root, comm, stream); });
    case Collective::kReduceScatter:
      return WithOperator(
          a, [&](RedOp op) { return nccl.reduce_scatter(a.src, a.dst, a.count, a.type, op, comm, stream); });
    case Collective::kAllGather:
      return nccl.all_gather(a.src, a.dst, a.count, a.type, comm, stream);
    case Collective::kBroadcast:
      return nccl.broadcast(a.src, a.dst, a.count, a.type, call.root, comm, stream);
    case Collective::kGather:
      if (nccl.gather == nullptr) return GatherBlocks(a);
      return nccl.gather(a.src, a.dst, a.count, a.type, call.root, comm, stream);
    case Collective::kScatter:
      if (nccl.scatter == nullptr) return ScatterBlocks(a);
      return nccl.scatter(a.src, a.dst, a.count, a.type, call.root, comm, stream);
    case Collective::kAllToAll:
      if (nccl.all_to_all == nullptr) return ExchangeBlocks(a);
      return nccl.all_to_all(a.src, a.dst, a.count, a.type, comm, stream);
    case Collective::kSend:
      return SendBlock(a, a.src, call.root);
    case Collective::kRecv:
      return RecvBlock(a, a.dst, call.root);
    case Collective::kAllToAllV:
    case Collective::kBarrier:
      return Result::kInvalidArgument;  // not supported, which has been checked
  }
  return Result::kInvalidArgument;
}

GroupEnd EnqueueGroup(const Library& nccl, Comm comm, Rank rank, int size, absl::Span<const NativeCall> calls,
                      CUstream_st* stream) {
  // The creation of operators, too, is inside the group: nothing is under way in the communicator until its end.
  GroupEnd end = {.result = nccl.group_start()};
  while (IsGood(end.result) && end.begun < calls.size()) {
    end.result = EnqueueOne(nccl, comm, rank, size, calls[end.begun++], stream);
  }
  const Result ended = nccl.group_end();
  if (IsGood(end.result)) end.result = ended;
  return end;
}

}  // namespace tutti::nccl
