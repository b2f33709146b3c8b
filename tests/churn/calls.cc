#include "tests/churn/calls.h"

#include <algorithm>

namespace tutti::churn {
namespace {

// The block that all_to_all_v moves from one rank to another: `unit` times 0, 1, 2 or 3 elements.
std::int64_t BlockCount(std::int64_t unit, Rank from, Rank to) { return (from * 3 + to * 5) % 4 * unit; }

// The combined bool of all ranks. A world of one rank combines nothing: bools stay the bytes that they are.
int CombinedTruth(const SharedCall& call, int size, std::int64_t i) {
  if (size == 1) return InputValue(call, 0, i);
  int truths = 0;
  for (Rank rank = 0; rank < size; ++rank) truths += InputValue(call, rank, i) != 0 ? 1 : 0;
  if (call.op == ReduceOp::kBitwiseXor) return truths % 2;
  const bool all = call.op == ReduceOp::kMin || call.op == ReduceOp::kBitwiseAnd;
  return (all ? truths == size : truths > 0) ? 1 : 0;
}

int Combined(const SharedCall& call, int size, std::int64_t i) {
  if (call.dtype == DType::kBool) return CombinedTruth(call, size, i);
  int result = InputValue(call, 0, i);
  for (Rank rank = 1; rank < size; ++rank) {
    const int value = InputValue(call, rank, i);
    if (call.op == ReduceOp::kMin) {
      result = std::min(result, value);
    } else if (call.op == ReduceOp::kMax) {
      result = std::max(result, value);
    } else if (call.op == ReduceOp::kBitwiseAnd) {
      result &= value;
    } else if (call.op == ReduceOp::kBitwiseOr) {
      result |= value;
    } else if (call.op == ReduceOp::kBitwiseXor) {
      result ^= value;
    } else {
      result += value;
    }
  }
  return result;
}

}  // namespace

int InputValue(const SharedCall& call, Rank rank, std::int64_t i) {
  return static_cast<int>((rank * 5 + i * 3 + call.salt) % kPeriod);
}

CollectiveSpec SpecOf(const SharedCall& call, Rank rank, int size) {
  CollectiveSpec spec = {.collective = call.collective, .dtype = call.dtype, .op = call.op, .root = call.root};
  spec.in_place = call.in_place;
  if (call.collective == Collective::kAllToAllV) {
    for (Rank peer = 0; peer < size; ++peer) {
      spec.send_counts.push_back(BlockCount(call.count, rank, peer));
      spec.recv_counts.push_back(BlockCount(call.count, peer, rank));
    }
  } else if (call.collective != Collective::kBarrier) {
    spec.count = call.count;
  }
  return spec;
}

std::vector<Block> ExpectedOutput(const SharedCall& call, Rank rank, int size) {
  const std::int64_t count = call.count;
  const auto combined_from = [&call, size](std::int64_t first) {
    return [&call, size, first](std::int64_t i) { return Combined(call, size, first + i); };
  };
  const auto of_rank = [&call](Rank from, std::int64_t first) {
    return [&call, from, first](std::int64_t i) { return InputValue(call, from, first + i); };
  };
  std::vector<Block> blocks;
  switch (call.collective) {
    case Collective::kAllReduce:
      return {{count, combined_from(0)}};
    case Collective::kReduce:
      if (rank == call.root) blocks.push_back({count, combined_from(0)});
      return blocks;
    case Collective::kReduceScatter:
      return {{count, combined_from(rank * count)}};
    case Collective::kAllGather:
    case Collective::kGather:
      if (call.collective == Collective::kGather && rank != call.root) return blocks;
      for (Rank from = 0; from < size; ++from) blocks.push_back({count, of_rank(from, 0)});
      return blocks;
    case Collective::kBroadcast:
    case Collective::kRecv:
      return {{count, of_rank(call.root, 0)}};
    case Collective::kScatter:
      return {{count, of_rank(call.root, rank * count)}};
    case Collective::kAllToAll:
      for (Rank from = 0; from < size; ++from) blocks.push_back({count, of_rank(from, rank * count)});
      return blocks;
    case Collective::kAllToAllV:
      for (Rank from = 0; from < size; ++from) {
        std::int64_t first = 0;
        for (Rank earlier = 0; earlier < rank; ++earlier) first += BlockCount(count, from, earlier);
        blocks.push_back({BlockCount(count, from, rank), of_rank(from, first)});
      }
      return blocks;
    case Collective::kBarrier:
    case Collective::kSend:
      return blocks;
  }
  return blocks;
}

}  // namespace tutti::churn
