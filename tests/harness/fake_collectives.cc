#include "tests/harness/fake_collectives.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/reduce.h"

namespace tutti {
namespace {

using Bytes = std::vector<std::byte>;

DType TuttiType(nccl::DataType type) {
  switch (type) {
    case nccl::DataType::kInt8:
      return DType::kI8;
    case nccl::DataType::kUint8:
      return DType::kU8;
    case nccl::DataType::kInt32:
      return DType::kI32;
    case nccl::DataType::kUint32:
      return DType::kU32;
    case nccl::DataType::kInt64:
      return DType::kI64;
    case nccl::DataType::kUint64:
      return DType::kU64;
    case nccl::DataType::kFloat16:
      return DType::kF16;
    case nccl::DataType::kFloat32:
      return DType::kF32;
    case nccl::DataType::kFloat64:
      return DType::kF64;
    case nccl::DataType::kBfloat16:
      return DType::kBF16;
  }
  return DType::kU8;
}

ReduceOp TuttiOp(nccl::RedOp op) {
  switch (op) {
    case nccl::RedOp::kProd:
      return ReduceOp::kProd;
    case nccl::RedOp::kMax:
      return ReduceOp::kMax;
    case nccl::RedOp::kMin:
      return ReduceOp::kMin;
    case nccl::RedOp::kAvg:
      return ReduceOp::kAvg;
    default:
      return ReduceOp::kSum;
  }
}

// All ranks' `blocks` · count elements, reduced.
Bytes Reduced(const std::map<int, FakeCall>& calls, std::size_t blocks) {
  const FakeCall& first = calls.begin()->second;
  const DType type = TuttiType(first.type);
  const auto count = static_cast<std::int64_t>(blocks * first.count);
  const std::size_t bytes = blocks * first.count * FakeSizeOf(first.type);
  std::vector<Bytes> inputs;
  for (const auto& [rank, call] : calls) {
    const auto* const begin = static_cast<const std::byte*>(call.src);
    Bytes& input = inputs.emplace_back(begin, begin + bytes);
    if (call.op == nccl::RedOp::kFirstCreated) kernels::Multiply(type, input.data(), input.data(), call.factor, count);
  }
  std::vector<const void*> sources;
  for (const Bytes& input : inputs) sources.push_back(input.data());
  Bytes result(bytes);
  void* const destination = result.data();
  kernels::Reduce(type, TuttiOp(first.op), static_cast<std::int32_t>(calls.size()), {&destination, 1}, sources, count,
                  kernels::Stores::kCached);
  return result;
}

void Write(void* dst, const Bytes& bytes, std::size_t begin, std::size_t length) {
  std::copy_n(bytes.data() + begin, length, static_cast<std::byte*>(dst));
}

}  // namespace

std::size_t FakeSizeOf(nccl::DataType type) { return static_cast<std::size_t>(SizeOf(TuttiType(type))); }

std::string Disagreement(const std::map<int, FakeCall>& calls) {
  const auto& [first_rank, first] = *calls.begin();
  for (const auto& [rank, call] : calls) {
    const auto differ = [&, first_rank = first_rank, rank = rank](absl::string_view field, auto mine, auto theirs) {
      return absl::StrCat("rank ", rank, " has ", field, " ", mine, ", rank ", first_rank, " has ", theirs);
    };
    if (call.collective != first.collective) {
      return differ("collective", Name(call.collective), Name(first.collective));
    }
    if (call.count != first.count) return differ("count", call.count, first.count);
    if (call.type != first.type) return differ("type", static_cast<int>(call.type), static_cast<int>(first.type));
    if (call.op != first.op) return differ("op", static_cast<int>(call.op), static_cast<int>(first.op));
    if (call.root != first.root) return differ("root", call.root, first.root);
  }
  return "";
}

void PerformCollective(const std::map<int, FakeCall>& calls) {
  const FakeCall& first = calls.begin()->second;
  const std::size_t size = calls.size();
  const std::size_t block = first.count * FakeSizeOf(first.type);
  const FakeCall& root = calls.at(first.root);
  Bytes all;
  // Inputs are taken before any output is written, because they may be in place.
  const auto take = [&](const void* src, std::size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(src);
    all.insert(all.end(), begin, begin + bytes);
  };
  switch (first.collective) {
    case Collective::kAllReduce:
      all = Reduced(calls, 1);
      for (const auto& [rank, call] : calls) Write(call.dst, all, 0, block);
      return;
    case Collective::kReduce:
      Write(root.dst, Reduced(calls, 1), 0, block);
      return;
    case Collective::kReduceScatter:
      all = Reduced(calls, size);
      for (const auto& [rank, call] : calls) Write(call.dst, all, static_cast<std::size_t>(rank) * block, block);
      return;
    case Collective::kBroadcast:
      take(root.src, block);
      for (const auto& [rank, call] : calls) Write(call.dst, all, 0, block);
      return;
    case Collective::kAllGather:
      for (const auto& [rank, call] : calls) take(call.src, block);
      for (const auto& [rank, call] : calls) Write(call.dst, all, 0, size * block);
      return;
    case Collective::kGather:
      for (const auto& [rank, call] : calls) take(call.src, block);
      Write(root.dst, all, 0, size * block);
      return;
    case Collective::kScatter:
      take(root.src, size * block);
      for (const auto& [rank, call] : calls) Write(call.dst, all, static_cast<std::size_t>(rank) * block, block);
      return;
    case Collective::kAllToAll:
      for (const auto& [rank, call] : calls) take(call.src, size * block);
      for (const auto& [rank, call] : calls) {
        auto* dst = static_cast<std::byte*>(call.dst);
        for (std::size_t peer = 0; peer < size; ++peer) {
          Write(dst + peer * block, all, (peer * size + static_cast<std::size_t>(rank)) * block, block);
        }
      }
      return;
    default:
      return;
  }
}

}  // namespace tutti
