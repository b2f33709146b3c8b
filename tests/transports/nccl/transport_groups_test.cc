// Groups made of groups (Split, Shrink), registration of memory, and the orderly end.
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/transports/nccl/nccl_world.h"

namespace tutti::nccl {
namespace {

using testing::HasSubstr;
using Made = absl::StatusOr<std::unique_ptr<NativeTransport>>;

// The sum of `value` over the ranks of `native`.
float Sum(const NcclRank& self, NativeTransport& native, float value) {
  EXPECT_EQ(self.Perform(native, {{.count = 1, .src = &value, .dst = &value}}), absl::OkStatus());
  return value;
}

TEST(NcclTransportGroupsTest, SplitMakesAGroupOfEachColor) {
  NcclWorld(5).Run([](NcclRank& self) {
    // Even and odd ranks, the highest rank first; rank 4 keeps out.
    const std::optional<int> color = self.rank == 4 ? std::nullopt : std::optional<int>(self.rank % 2);
    Made made = self.transport->Split(color, -self.rank, Later());
    ASSERT_TRUE(made.ok()) << made.status();
    if (!color) {
      EXPECT_EQ(*made, nullptr);
    } else {
      EXPECT_EQ((*made)->size(), 2);
      EXPECT_EQ((*made)->rank(), self.rank < 2 ? 1 : 0);
      const std::map<int, float> sums = {{0, 2}, {1, 4}};
      EXPECT_EQ(Sum(self, **made, static_cast<float>(self.rank)), sums.at(*color));
      EXPECT_EQ((*made)->Finalize(Later()), absl::OkStatus());
    }
    EXPECT_EQ(Sum(self, *self.transport, 1), 5);
    Made again = self.transport->Split(0, 0, Later());
    ASSERT_TRUE(again.ok());
    EXPECT_EQ((*again)->rank(), self.rank);
    EXPECT_EQ(Sum(self, **again, 2), 10);
    EXPECT_EQ((*again)->Finalize(Later()), absl::OkStatus());
  });
}

TEST(NcclTransportGroupsTest, SplitEndsAtItsDeadlineWithoutAllRanks) {
  const int living = FakeNccl::LivingCommunicators();
  NcclWorld(3).Run([](NcclRank& self) {
    if (self.rank != 1) {
      const absl::Status late = self.transport->Split(0, 0, Soon()).status();
      EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
      EXPECT_THAT(std::string(late.message()), HasSubstr("in split for the other ranks"));
      EXPECT_EQ(self.transport->Ready().status(), late);
    }
    self.transport = nullptr;
  });
  EXPECT_EQ(FakeNccl::LivingCommunicators(), living);
}

TEST(NcclTransportGroupsTest, AWrongColorIsAnError) {
  NcclWorld(1).Run([](NcclRank& self) {
    EXPECT_EQ(self.transport->Split(-3, 0, Later()).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Sum(self, *self.transport, 1), 1);
  });
}

TEST(NcclTransportGroupsTest, TheSurvivorsShrinkAndGoOn) {
  NcclWorld(5).Run([](NcclRank& self) {
    EXPECT_EQ(Sum(self, *self.transport, 1), 5);
    if (self.rank == 0 || self.rank == 3) {  // they die
      self.transport = nullptr;
      return;
    }
    // A collective that waits for the dead for ever is ended by the shrink.
    float lost = 1;
    EXPECT_EQ(self.transport->Enqueue({{.count = 1, .src = &lost, .dst = &lost}}, self.stream), absl::OkStatus());
    EXPECT_EQ(self.AwaitReady(*self.transport), absl::OkStatus());
    Made made = self.transport->Shrink({3, 0}, Later());
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ((*made)->size(), 3);
    const std::map<Rank, Rank> ranks = {{1, 0}, {2, 1}, {4, 2}};
    EXPECT_EQ((*made)->rank(), ranks.at(self.rank));
    EXPECT_EQ(Sum(self, **made, static_cast<float>(self.rank)), 7);
    EXPECT_EQ(self.transport->Ready().status().code(), absl::StatusCode::kAborted);
    self.transport = *std::move(made);
  });
}

TEST(NcclTransportGroupsTest, SurvivorsThatDisagreeDoNotMeet) {
  NcclWorld(3).Run([](NcclRank& self) {
    if (self.rank != 2) {
      const std::vector<Rank> dead = self.rank == 0 ? std::vector<Rank>{2} : std::vector<Rank>{0};
      EXPECT_EQ(self.transport->Shrink(dead, Soon()).status().code(), absl::StatusCode::kDeadlineExceeded);
    }
    self.transport = nullptr;
  });
}

TEST(NcclTransportGroupsTest, ShrinkSaysWhatIsWrong) {
  NcclWorld(2, FakeNccl::TableOf(22304)).Run([](NcclRank& self) {
    EXPECT_EQ(self.transport->Shrink({}, Later()).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(self.transport->Shrink({self.rank}, Later()).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(self.transport->Shrink({2}, Later()).status().code(), absl::StatusCode::kInvalidArgument);
    const absl::Status old = self.transport->Shrink({1 - self.rank}, Later()).status();
    EXPECT_EQ(old.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(old.message()), HasSubstr("NCCL 2.23.4 has no ncclCommShrink"));
    EXPECT_EQ(Sum(self, *self.transport, 1), 2);
  });
}

// NCCL refuses to shrink a communicator in which it has found an error: the survivors connect anew.
TEST(NcclTransportGroupsTest, AnErrorOfNcclCannotBeShrunkAway) {
  const NcclWorld world(2);
  FakeNccl::Inject(world.id(), {.rank = 0, .launch = 0, .error = Result::kRemoteError});
  world.Run([](NcclRank& self) {
    if (self.rank == 0) {
      float value = 1;
      EXPECT_EQ(self.Perform({{.count = 1, .src = &value, .dst = &value}}).code(), absl::StatusCode::kUnavailable);
      const absl::Status refused = self.transport->Shrink({1}, Later()).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(std::string(refused.message()), HasSubstr("rank 0: shrink"));
    } else {
      float value = 1;
      EXPECT_EQ(self.transport->Enqueue({{.count = 1, .src = &value, .dst = &value}}, self.stream), absl::OkStatus());
      EXPECT_EQ(self.AwaitReady(*self.transport), absl::OkStatus());
      self.transport = nullptr;  // before `value`
    }
    self.transport = nullptr;
  });
}

TEST(NcclTransportGroupsTest, RegisteredMemoryIsGivenUpAtTheEnd) {
  const int before = FakeNccl::LeftBehind();
  NcclWorld(1).Run([](NcclRank& self) {
    float first = 0;
    float second = 0;
    EXPECT_EQ(self.transport->Register(&first, sizeof first).value(), true);
    EXPECT_EQ(self.transport->Register(&second, sizeof second).value(), true);
    EXPECT_EQ(self.transport->Register(&first, 1).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(self.transport->Unregister(&first), absl::OkStatus());
    EXPECT_EQ(self.transport->Unregister(&first), absl::OkStatus());
    // An operator with a factor, too, is given up.
    EXPECT_EQ(self.Perform({{.op = ReduceOp::kPremulSum, .count = 1, .factor = 2, .src = &second, .dst = &second}}),
              absl::OkStatus());
  });
  EXPECT_EQ(FakeNccl::LeftBehind(), before);
  Library without = FakeNccl::Table();
  without.comm_register = nullptr;
  NcclWorld(1, without).Run([](NcclRank& self) {
    float value = 0;
    EXPECT_EQ(self.transport->Register(&value, sizeof value).value(), false);
    EXPECT_EQ(self.transport->Unregister(&value), absl::OkStatus());
  });
}

TEST(NcclTransportGroupsTest, FinalizeWaitsForWhatWasEnqueued) {
  const int living = FakeNccl::LivingCommunicators();
  NcclWorld(3).Run([](NcclRank& self) {
    float value = 1;
    EXPECT_EQ(self.transport->Enqueue({{.count = 1, .src = &value, .dst = &value}}, self.stream), absl::OkStatus());
    EXPECT_EQ(self.AwaitReady(*self.transport), absl::OkStatus());
    EXPECT_EQ(self.transport->Finalize(Later()), absl::OkStatus());
    EXPECT_EQ(value, 3);
    EXPECT_EQ(self.transport->Ready().status().code(), absl::StatusCode::kFailedPrecondition);
    self.transport = nullptr;
  });
  EXPECT_EQ(FakeNccl::LivingCommunicators(), living);
}

TEST(NcclTransportGroupsTest, FinalizeEndsAtItsDeadline) {
  NcclWorld(2).Run([](NcclRank& self) {
    float value = Sum(self, *self.transport, 1);
    if (self.rank == 0) {
      EXPECT_EQ(self.transport->Enqueue({{.count = 1, .src = &value, .dst = &value}}, self.stream), absl::OkStatus());
      EXPECT_EQ(self.AwaitReady(*self.transport), absl::OkStatus());
      EXPECT_EQ(self.transport->Finalize(Soon()).code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_EQ(FakeCuda::Table().synchronize_stream(self.stream), kCudaSuccess);
    }
    self.transport = nullptr;
  });
}

}  // namespace
}  // namespace tutti::nccl
