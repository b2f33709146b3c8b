// The types of elements: which can be reduced, by which operators, and that all can be moved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <complex>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/harness/world.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CommunicatorTypesTest : public ::testing::TestWithParam<std::string> {
 protected:
  void Run(int size, const std::function<void(Communicator&)>& body) {
    RunWorld(size, {.transport = GetParam()}, body);
  }
};

TEST_P(CommunicatorTypesTest, EveryTypeTravelsBitForBit) {
  Run(3, [](Communicator& comm) {
    const Rank next = (comm.rank() + 1) % comm.size();
    const Rank before = (comm.rank() + comm.size() - 1) % comm.size();
    constexpr std::int64_t kCount = 257;
    for (const DType dtype : kAllDTypes) {
      const auto bytes = static_cast<std::size_t>(kCount * SizeOf(dtype));
      const auto pattern = [&](Rank rank) {  // any bits: NaN, and bools other than 0 and 1
        std::vector<std::uint8_t> data(bytes);
        for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::uint8_t>(37 * rank + 11 * i);
        return data;
      };
      const std::vector<std::uint8_t> mine = pattern(comm.rank());
      std::vector<std::uint8_t> received(bytes);
      Work recv = comm.Recv(received.data(), kCount, dtype, before);
      Work send = comm.Send(mine.data(), kCount, dtype, next);
      ASSERT_EQ(recv.Wait(), absl::OkStatus());
      ASSERT_EQ(send.Wait(), absl::OkStatus());
      EXPECT_EQ(received, pattern(before)) << Name(dtype);
      std::vector<std::uint8_t> all(3 * bytes);
      ASSERT_EQ(comm.AllGather(mine.data(), all.data(), kCount, dtype).Wait(), absl::OkStatus());
      for (Rank rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(std::memcmp(all.data() + static_cast<std::size_t>(rank) * bytes, pattern(rank).data(), bytes), 0);
      }
      received = mine;
      ASSERT_EQ(comm.Broadcast(received.data(), received.data(), kCount, dtype, 2).Wait(), absl::OkStatus());
      EXPECT_EQ(received, pattern(2)) << Name(dtype);
    }
  });
}

TEST_P(CommunicatorTypesTest, WhatHasNoOperatorIsRefusedAndTheCommunicatorGoesOn) {
  Run(2, [](Communicator& comm) {
    std::uint64_t x[4] = {};
    const auto error = [&](DType dtype, ReduceOp op) {
      const absl::Status status = comm.AllReduce(x, x, 2, dtype, op).Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      return std::string(status.message());
    };
    EXPECT_THAT(error(DType::kF8E5M2, ReduceOp::kMax),
                HasSubstr("op max is not defined for f8e5m2, which can be moved (all_gather, broadcast, send …)"));
    EXPECT_THAT(error(DType::kF16, ReduceOp::kBitwiseAnd), HasSubstr("op band is not defined for f16; valid for f16"));
    EXPECT_THAT(error(DType::kC128, ReduceOp::kMin), HasSubstr("op min is not defined for c128"));
    EXPECT_THAT(error(DType::kBool, ReduceOp::kAvg), HasSubstr("average f32"));
    EXPECT_THAT(error(DType::kU32, ReduceOp::kPremulSum), HasSubstr("op premul_sum is not defined for u32"));
    EXPECT_THAT(comm.Explain({.dtype = DType::kF8E4M3FN, .count = 1}), HasSubstr("op sum is not defined for f8e4m3fn"));
    EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
  });
}

TEST_P(CommunicatorTypesTest, BoolsAreAnyByteAndBecomeZeroOrOne) {
  Run(3, [](Communicator& comm) {
    const auto rank = static_cast<std::uint8_t>(comm.rank());
    // The three elements are true on no rank, on rank 1, and on all ranks.
    const std::uint8_t in[] = {0, static_cast<std::uint8_t>(rank == 1 ? 4 : 0), static_cast<std::uint8_t>(2 + rank)};
    std::uint8_t out[3];
    const auto reduced = [&](ReduceOp op) {
      EXPECT_EQ(comm.AllReduce(in, out, 3, DType::kBool, op).Wait(), absl::OkStatus());
      return std::vector<int>(out, out + 3);
    };
    EXPECT_THAT(reduced(ReduceOp::kSum), ElementsAre(0, 1, 1));
    EXPECT_THAT(reduced(ReduceOp::kMax), ElementsAre(0, 1, 1));
    EXPECT_THAT(reduced(ReduceOp::kBitwiseOr), ElementsAre(0, 1, 1));
    EXPECT_THAT(reduced(ReduceOp::kProd), ElementsAre(0, 0, 1));
    EXPECT_THAT(reduced(ReduceOp::kMin), ElementsAre(0, 0, 1));
    EXPECT_THAT(reduced(ReduceOp::kBitwiseAnd), ElementsAre(0, 0, 1));
    EXPECT_THAT(reduced(ReduceOp::kBitwiseXor), ElementsAre(0, 1, 1));
  });
}

TEST_P(CommunicatorTypesTest, ComplexNumbersMultiplyAsSuch) {
  Run(2, [](Communicator& comm) {
    const std::complex<double> factors[] = {{1, 2}, {3, -4}};
    const std::complex<double> in = factors[comm.rank()];
    std::complex<double> out;
    ASSERT_EQ(comm.AllReduce(&in, &out, 1, DType::kC128, ReduceOp::kProd).Wait(), absl::OkStatus());
    EXPECT_EQ(out, std::complex<double>(11, 2));
    ASSERT_EQ(comm.AllReduce(&in, &out, 1, DType::kC128, ReduceOp::kAvg).Wait(), absl::OkStatus());
    EXPECT_EQ(out, std::complex<double>(2, -1));
  });
}

// The factor belongs to the run: one plan serves all factors.
TEST_P(CommunicatorTypesTest, EveryRankAndEveryRunHasAFactorOfItsOwn) {
  Run(3, [](Communicator& comm) {
    const float in[2] = {1, 10};
    float out[2];
    absl::StatusOr<BoundPlan> bound =
        comm.Bind(CollectiveSpec{.op = ReduceOp::kPremulSum, .count = 2}, {.in = in, .out = out});
    ASSERT_TRUE(bound.ok()) << bound.status();
    for (int run = 0; run < 20; ++run) {
      const double factor = comm.rank() == 0 ? 0.5 * run : comm.rank() - 3;
      ASSERT_EQ(bound->Start({.factor = factor}).Wait(), absl::OkStatus());
      const float expected = 0.5f * static_cast<float>(run) - 3;
      EXPECT_THAT(out, ElementsAre(expected, 10 * expected));
      float in_place[2] = {1, 10};
      const CallOptions options = {.factor = factor};
      ASSERT_EQ(comm.AllReduce(in_place, in_place, 2, DType::kF32, ReduceOp::kPremulSum, options).Wait(),
                absl::OkStatus());
      EXPECT_THAT(in_place, ElementsAre(expected, 10 * expected));
    }
    EXPECT_THAT(in, ElementsAre(1, 10));
  });
}

TEST_P(CommunicatorTypesTest, AFactorWithoutPremultiplicationIsRefused) {
  Run(2, [](Communicator& comm) {
    float x[2] = {1, 2};
    const absl::Status status = comm.AllReduce(x, x, 2, DType::kF32, ReduceOp::kSum, {.factor = 2}).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("all_reduce f32 sum count=2 of rank " + std::to_string(comm.rank()) +
                          ": factor 2 must be 1: only op premul_sum multiplies by it"));
    EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
  });
}

TEST_P(CommunicatorTypesTest, AWorldOfOneMultipliesToo) {
  Run(1, [](Communicator& comm) {
    const float in[2] = {1, 2};
    float out[2];
    const CallOptions options = {.factor = -2};
    ASSERT_EQ(comm.AllReduce(in, out, 2, DType::kF32, ReduceOp::kPremulSum, options).Wait(), absl::OkStatus());
    EXPECT_THAT(out, ElementsAre(-2, -4));
  });
}

INSTANTIATE_TEST_SUITE_P(, CommunicatorTypesTest, ::testing::ValuesIn(WorldTransports()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tutti
