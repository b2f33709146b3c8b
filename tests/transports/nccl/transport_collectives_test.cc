// Every collective, type and operator of the native transport over the fake NCCL, in worlds of 1 to 5 ranks.
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "kernels/reduce.h"
#include "tests/transports/nccl/nccl_world.h"
#include "transports/nccl/types.h"
#include "tutti/native.h"

namespace tutti::nccl {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t kCounts[] = {0, 1, 5};

// Small enough for the product of five in every type.
double Value(Rank rank, std::int64_t i) { return 1 + static_cast<double>((rank + i) % 2); }

Bytes Convert(DType dtype, const std::vector<double>& values) {
  Bytes bytes(values.size() * static_cast<std::size_t>(SizeOf(dtype)));
  kernels::Convert(dtype, bytes.data(), DType::kF64, values.data(), static_cast<std::int64_t>(values.size()),
                   kernels::Stores::kCached);
  return bytes;
}

double Combine(ReduceOp op, double a, double b) {
  if (op == ReduceOp::kProd) return a * b;
  if (op == ReduceOp::kMin) return std::min(a, b);
  return op == ReduceOp::kMax ? std::max(a, b) : a + b;
}

// Elements [begin, begin + count) of the reduction of all ranks.
Bytes Reduced(DType dtype, ReduceOp op, int size, std::int64_t begin, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = begin; i < begin + count; ++i) {
    double value = Value(0, i);
    for (Rank rank = 1; rank < size; ++rank) value = Combine(op, value, Value(rank, i));
    if (op == ReduceOp::kAvg) value = IsInteger(dtype) ? std::trunc(value / size) : value / size;
    values.push_back(value);
  }
  return Convert(dtype, values);
}

Bytes Input(DType dtype, Rank rank, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(Value(rank, i));
  return Convert(dtype, values);
}

void CheckReductions(const NcclRank& self, DType dtype, ReduceOp op, std::int64_t count) {
  const std::string where = absl::StrCat(Name(dtype), " ", Name(op), " count ", count, " rank ", self.rank);
  Bytes in = Input(dtype, self.rank, count);
  Bytes out(in.size());
  EXPECT_EQ(self.Perform({{Collective::kAllReduce, dtype, op, count, 0, 1, in.data(), out.data()}}), absl::OkStatus());
  EXPECT_EQ(out, Reduced(dtype, op, self.size, 0, count)) << "all_reduce " << where;

  const Rank root = self.size - 1;
  Bytes on_root(in.size());
  void* const dst = self.rank == root ? on_root.data() : nullptr;
  EXPECT_EQ(self.Perform({{Collective::kReduce, dtype, op, count, root, 1, in.data(), dst}}), absl::OkStatus());
  if (self.rank == root) {
    EXPECT_EQ(on_root, Reduced(dtype, op, self.size, 0, count)) << "reduce " << where;
  }

  Bytes blocks = Input(dtype, self.rank, self.size * count);
  EXPECT_EQ(self.Perform({{Collective::kReduceScatter, dtype, op, count, 0, 1, blocks.data(), out.data()}}),
            absl::OkStatus());
  EXPECT_EQ(out, Reduced(dtype, op, self.size, self.rank * count, count)) << "reduce_scatter " << where;
  // In place: the output is this rank's block of the input.
  std::byte* const own = blocks.data() + self.rank * count * SizeOf(dtype);
  EXPECT_EQ(self.Perform({{Collective::kReduceScatter, dtype, op, count, 0, 1, blocks.data(), own}}), absl::OkStatus());
  EXPECT_EQ(Bytes(own, own + out.size()), out) << "reduce_scatter in place " << where;
  EXPECT_EQ(self.Perform({{Collective::kAllReduce, dtype, op, count, 0, 1, in.data(), in.data()}}), absl::OkStatus());
  EXPECT_EQ(in, Reduced(dtype, op, self.size, 0, count)) << "all_reduce in place " << where;
}

class NcclTransportTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, NcclTransportTest, testing::Values(1, 2, 3, 4, 5));

TEST_P(NcclTransportTest, ReducesEveryTypeWithEveryOperator) {
  NcclWorld(GetParam()).Run([](NcclRank& self) {
    int supported = 0;
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kAllReduceOps) {
        if (op == ReduceOp::kPremulSum) continue;  // a test of its own
        if (!self.transport->Supports(Collective::kAllReduce, dtype, op).ok()) continue;
        ++supported;
        for (const std::int64_t count : kCounts) CheckReductions(self, dtype, op, count);
      }
    }
    // sum, avg and prod of ten types, min and max of the six that are integers.
    EXPECT_EQ(supported, 42);
  });
}

TEST_P(NcclTransportTest, MultipliesByEveryRanksFactor) {
  NcclWorld(GetParam()).Run([](NcclRank& self) {
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      const Bytes in = Input(dtype, self.rank, 3);
      Bytes out(in.size());
      EXPECT_EQ(self.Perform({{Collective::kAllReduce, dtype, ReduceOp::kPremulSum, 3, 0, self.rank + 0.5, in.data(),
                               out.data()}}),
                absl::OkStatus());
      std::vector<double> expected(3);
      for (Rank rank = 0; rank < self.size; ++rank) {
        for (std::int64_t i = 0; i < 3; ++i) expected[static_cast<std::size_t>(i)] += (rank + 0.5) * Value(rank, i);
      }
      EXPECT_EQ(out, Convert(dtype, expected));
    }
  });
}

// Block `block` of `rank`, as bytes.
Bytes Block(Rank rank, Rank block, std::int64_t bytes) {
  Bytes data;
  for (std::int64_t i = 0; i < bytes; ++i) data.push_back(static_cast<std::byte>(rank * 89 + block * 31 + i * 7));
  return data;
}

// Block `block` of every rank, or every block of `rank`, one after the other.
Bytes OfEveryRank(int size, Rank block, std::int64_t bytes) {
  Bytes all;
  for (Rank rank = 0; rank < size; ++rank) {
    const Bytes one = Block(rank, block, bytes);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

Bytes EveryBlock(int size, Rank rank, std::int64_t bytes) {
  Bytes all;
  for (Rank block = 0; block < size; ++block) {
    const Bytes one = Block(rank, block, bytes);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

void CheckMoves(const NcclRank& self, DType dtype, std::int64_t count) {
  const std::int64_t bytes = count * SizeOf(dtype);
  const auto length = static_cast<std::size_t>(bytes);
  const Rank root = self.size / 2;
  const bool is_root = self.rank == root;
  const auto perform = [&](Collective collective, const void* src, void* dst) {
    EXPECT_EQ(self.Perform({{collective, dtype, ReduceOp::kSum, count, root, 1, src, dst}}), absl::OkStatus())
        << Name(collective) << " " << Name(dtype);
  };
  const Bytes own = Block(self.rank, 0, bytes);
  Bytes all(length * static_cast<std::size_t>(self.size));
  perform(Collective::kAllGather, own.data(), all.data());
  EXPECT_EQ(all, OfEveryRank(self.size, 0, bytes));

  Bytes one(length);
  perform(Collective::kBroadcast, is_root ? own.data() : nullptr, one.data());
  EXPECT_EQ(one, Block(root, 0, bytes));

  std::fill(all.begin(), all.end(), std::byte{});
  perform(Collective::kGather, own.data(), is_root ? all.data() : nullptr);
  if (is_root) {
    EXPECT_EQ(all, OfEveryRank(self.size, 0, bytes));
  }
  // In place: the root's own block lies where it is to go.
  std::byte* const in_place = all.data() + root * bytes;
  perform(Collective::kGather, is_root ? in_place : own.data(), is_root ? all.data() : nullptr);
  if (is_root) {
    EXPECT_EQ(all, OfEveryRank(self.size, 0, bytes));
  }

  const Bytes blocks = EveryBlock(self.size, self.rank, bytes);
  perform(Collective::kScatter, is_root ? blocks.data() : nullptr, one.data());
  EXPECT_EQ(one, Block(root, self.rank, bytes));
  perform(Collective::kScatter, is_root ? blocks.data() : nullptr,
          is_root ? const_cast<std::byte*>(blocks.data()) + root * bytes : one.data());
  EXPECT_EQ(one, Block(root, self.rank, bytes));

  perform(Collective::kAllToAll, blocks.data(), all.data());
  EXPECT_EQ(all, OfEveryRank(self.size, self.rank, bytes));
}

TEST_P(NcclTransportTest, MovesEveryType) {
  NcclWorld(GetParam()).Run([](NcclRank& self) {
    for (const DType dtype : kAllDTypes) {
      for (const std::int64_t count : kCounts) CheckMoves(self, dtype, count);
    }
  });
}

// NCCL has gather, scatter and all_to_all since 2.28; with an older one they are sends and receives of one group.
TEST_P(NcclTransportTest, MovesWithAnOldNccl) {
  NcclWorld(GetParam(), FakeNccl::TableOf(kOldestVersion)).Run([](NcclRank& self) {
    for (const DType dtype : {DType::kF32, DType::kC128, DType::kBool}) {
      for (const std::int64_t count : kCounts) CheckMoves(self, dtype, count);
    }
  });
}

// Every rank sends to the next and receives from the one before, itself in a world of one.
TEST_P(NcclTransportTest, SendAndRecvOfOneGroupMeet) {
  NcclWorld(GetParam()).Run([](NcclRank& self) {
    const Bytes out = Block(self.rank, 0, 12);
    Bytes in(12);
    const Rank next = (self.rank + 1) % self.size;
    const Rank before = (self.rank + self.size - 1) % self.size;
    EXPECT_EQ(self.Perform({{Collective::kSend, DType::kF32, ReduceOp::kSum, 3, next, 1, out.data(), nullptr},
                            {Collective::kRecv, DType::kF32, ReduceOp::kSum, 3, before, 1, nullptr, in.data()}}),
              absl::OkStatus());
    EXPECT_EQ(in, Block(before, 0, 12));
  });
}

TEST_P(NcclTransportTest, AGroupMayHoldSeveralCollectives) {
  NcclWorld(GetParam()).Run([](NcclRank& self) {
    Bytes first = Input(DType::kF32, self.rank, 5);
    Bytes second = Input(DType::kBF16, self.rank, 2);
    const FakeCudaCounts before = FakeCuda::Counts();
    EXPECT_EQ(
        self.Perform({{Collective::kAllReduce, DType::kF32, ReduceOp::kSum, 5, 0, 1, first.data(), first.data()},
                      {Collective::kAllReduce, DType::kBF16, ReduceOp::kAvg, 2, 0, 1, second.data(), second.data()}}),
        absl::OkStatus());
    EXPECT_LE((FakeCuda::Counts() - before).collectives, self.size);
    EXPECT_EQ(first, Reduced(DType::kF32, ReduceOp::kSum, self.size, 0, 5));
    EXPECT_EQ(second, Reduced(DType::kBF16, ReduceOp::kAvg, self.size, 0, 2));
  });
}

TEST(NcclTypesTest, SaysWhatIsNotSupported) {
  const struct {
    Collective collective;
    DType dtype;
    ReduceOp op;
    const char* reason;
  } kCases[] = {
      {Collective::kAllReduce, DType::kBool, ReduceOp::kSum, "NCCL does not compute with bool"},
      {Collective::kReduce, DType::kC64, ReduceOp::kSum, "NCCL does not compute with c64"},
      {Collective::kAllReduce, DType::kI16, ReduceOp::kSum, "NCCL does not compute with i16"},
      {Collective::kAllReduce, DType::kF32, ReduceOp::kMax, "ignores NaN"},
      {Collective::kReduceScatter, DType::kI32, ReduceOp::kBitwiseOr, "NCCL has no operator bor"},
      {Collective::kAllReduce, DType::kBF16, ReduceOp::kPremulSum, "round the factor of premul_sum to bf16"},
      {Collective::kBarrier, DType::kF32, ReduceOp::kSum, "NCCL has no barrier"},
      {Collective::kAllToAllV, DType::kF32, ReduceOp::kSum, "NCCL has no all_to_all_v"},
  };
  for (const auto& [collective, dtype, op, reason] : kCases) {
    const absl::Status status = CheckSupported(collective, dtype, op);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr(reason));
  }
  EXPECT_EQ(CheckSupported(Collective::kAllReduce, DType::kF8E5M2, ReduceOp::kSum).code(),
            absl::StatusCode::kInvalidArgument);
  for (const DType dtype : kAllDTypes) {
    EXPECT_TRUE(CheckSupported(Collective::kAllGather, dtype, ReduceOp::kSum).ok());
  }
}

// A native step is written where CollectivesOfNccl lists the collective, and must then be performed.
TEST(NcclTransportListTest, PerformsWhatPlansMayAskFor) {
  NcclWorld(1).Run([](NcclRank& self) {
    const NativeCollectives native = CollectivesOfNccl();
    int listed = 0;
    for (const Collective collective : native.collectives) {
      for (const DType dtype : kAllDTypes) {
        for (const ReduceOp op : kAllReduceOps) {
          const CollectiveSpec spec = {.collective = collective, .dtype = dtype, .op = op, .count = 1};
          // Plans multiply before they sum.
          if (op == ReduceOp::kPremulSum || !CheckNative(native, spec).ok()) continue;
          ++listed;
          EXPECT_EQ(self.transport->Supports(collective, dtype, op), absl::OkStatus())
              << Name(collective) << " " << Name(dtype) << " " << Name(op);
        }
      }
    }
    EXPECT_GT(listed, 100);
  });
}

}  // namespace
}  // namespace tutti::nccl
