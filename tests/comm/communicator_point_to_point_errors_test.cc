// The errors of a Send or Recv with wrong arguments, or that does not end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/comm/point_to_point.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using PointToPointErrors = PointToPoint;

std::string ErrorOf(Work work) { return work.Wait().ToString(); }

TEST_P(PointToPointErrors, ArgumentsThatMakeNoSenseAreRefusedOnEveryRank) {
  RunWorld(2, options(), [&](Communicator& comm) {
    float value = 0;
    for (const std::int32_t tag : {-1, kMaxTag + 1, std::numeric_limits<std::int32_t>::max()}) {
      const std::string text = absl::StrCat("tag ", tag, " must be in 0…268435455");
      EXPECT_THAT(ErrorOf(comm.Send(&value, 1, DType::kF32, 0, {.tag = tag})),
                  AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr(text), HasSubstr("send f32 count=1 to=0")));
      EXPECT_THAT(ErrorOf(comm.Recv(&value, 1, DType::kF32, kAnySource, {.tag = tag})),
                  AllOf(HasSubstr(text), HasSubstr(absl::StrCat("from=any of rank ", comm.rank()))));
    }
    for (const Rank rank : {-1, 2}) {
      const std::string text = absl::StrCat(rank, " must be in 0…1");
      EXPECT_THAT(ErrorOf(comm.Send(&value, 1, DType::kF32, rank)), HasSubstr("to " + text));
      EXPECT_THAT(ErrorOf(comm.Recv(&value, 1, DType::kF32, rank)), HasSubstr("from " + text + ", or kAnySource (-2)"));
    }
    EXPECT_THAT(ErrorOf(comm.Send(&value, 1, DType::kF32, kAnySource)), HasSubstr("to -2 must be in 0…1"));
    EXPECT_THAT(ErrorOf(comm.Broadcast(&value, &value, 1, DType::kF32, kAnySource)), HasSubstr("root -2 must be in"));
    EXPECT_THAT(ErrorOf(comm.AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum, {.tag = 1})),
                HasSubstr("tag 1 must be 0: only send and recv have a tag"));
    Work refused = comm.Recv(&value, -1, DType::kF32, kAnySource);
    EXPECT_THAT(refused.Wait().ToString(), HasSubstr("count -1"));
    EXPECT_EQ(refused.source(), kAnySource);
    EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus()) << "a refused call breaks nothing";
  });
}

// Rank 0 waits for a message of tag 5, from rank 1 or from any rank; rank 1 has sent one of tag 6.
TEST_P(PointToPointErrors, ATimeoutNamesTheTagAndTheSource) {
  for (const Rank from : {1, kAnySource}) {
    std::atomic<bool> ended = false;
    RunWorld(2, options(), [&](Communicator& comm) {
      std::int64_t value = 1;
      if (comm.rank() == 1) {
        EXPECT_EQ(comm.Send(&value, 1, DType::kI64, 0, {.tag = 7}).Wait(), absl::OkStatus());
        Work unwanted = comm.Send(&value, 1, DType::kI64, 0, {.tag = 6});
        ended.wait(false);
        (void)unwanted.Wait();
        return;
      }
      EXPECT_EQ(comm.Recv(&value, 1, DType::kI64, from, {.tag = 7}).Wait(), absl::OkStatus());
      Work recv = comm.Recv(&value, 1, DType::kI64, from, {.timeout = absl::Milliseconds(200), .tag = 5});
      EXPECT_THAT(ErrorOf(std::move(recv)),
                  AllOf(HasSubstr("DEADLINE_EXCEEDED"),
                        HasSubstr(from == 1 ? "rank 0 waited 200ms for rank 1 in call 1, recv:message recv i64 count=1 "
                                              "from=1 tag=5, at step 0 (recv)"
                                            : "rank 0 waited 200ms for any rank in call 1, recv:message recv i64 "
                                              "count=1 from=any tag=5, at step 0 (recv)")));
      ended = true;
      ended.notify_all();
    });
  }
}

// The Send is of a long message, which is not kept for its receiver. A Recv that is under way meanwhile ends with the
// same error.
TEST_P(PointToPointErrors, ASendToOneselfThatNobodyReceivesEndsAtItsDeadline) {
  RunWorld(1, options(), [](Communicator& comm) {
    const std::vector<float> out(3'000'000);
    float in = 0;
    Work other = comm.Recv(&in, 1, DType::kF32, 0, {.tag = 1});
    EXPECT_THAT(
        ErrorOf(comm.Send(out.data(), 3'000'000, DType::kF32, 0, {.timeout = absl::Milliseconds(200), .tag = 2})),
        AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("rank 0 waited 200ms for rank 0"), HasSubstr("tag=2")));
    EXPECT_THAT(ErrorOf(std::move(other)), HasSubstr("tag=2")) << "the first error is that of all";
  });
}

TEST_P(PointToPointErrors, AMessageOfAnotherLengthNamesBothLengthsTheSenderAndTheTag) {
  struct Lengths {
    std::int64_t sent, received;
  };
  for (const Rank from : {1, kAnySource}) {
    for (const Lengths& lengths :
         {Lengths{2, 4}, Lengths{600'000, 4}, Lengths{4, 600'000}, Lengths{0, 1}, Lengths{1, 0}}) {
      RunWorld(2, options(), [&](Communicator& comm) {
        std::vector<float> values(600'000);
        if (comm.rank() == 1) return (void)comm.Send(values.data(), lengths.sent, DType::kF32, 0, {.tag = 8}).Wait();
        EXPECT_THAT(
            ErrorOf(comm.Recv(values.data(), lengths.received, DType::kF32, from, {.tag = 8})),
            AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("rank 0 in call 0, recv:message recv f32"),
                  HasSubstr("tag=8: the message from rank 1"), HasSubstr(absl::StrCat("holds ", 4 * lengths.sent)),
                  HasSubstr(absl::StrCat("expects ", 4 * lengths.received))));
      });
    }
  }
}

TEST_P(PointToPointErrors, AnAbortEndsAReceiveFromAnySource) {
  RunWorld(3, options(), [&](Communicator& world) {
    absl::StatusOr<std::unique_ptr<Communicator>> group = world.Group({0, 1, 2}, "group");
    ASSERT_TRUE(group.ok());
    std::int64_t value = 0;
    Work recv = (*group)->Recv(&value, 1, DType::kI64, kAnySource, {.tag = 1});
    EXPECT_EQ(world.Barrier().Wait(), absl::OkStatus());
    if (world.rank() == 1) (*group)->Abort(absl::InternalError("enough"));
    EXPECT_THAT(recv.Wait().ToString(), HasSubstr("enough"));
    EXPECT_EQ(recv.source(), kAnySource);
    EXPECT_EQ(world.Barrier().Wait(), absl::OkStatus()) << "other groups go on";
  });
}

TEST_P(PointToPointErrors, AReceiveFromAnySourceEndsWhenAllOthersHaveLeft) {
  RunWorld(3, options(), [&](Communicator& world) {
    absl::StatusOr<std::unique_ptr<Communicator>> group = world.Group({0, 1, 2}, "group");
    ASSERT_TRUE(group.ok());
    std::int64_t value = world.rank();
    if (world.rank() != 0) {
      EXPECT_EQ((*group)->Send(&value, 1, DType::kI64, 0).Wait(), absl::OkStatus());
      group->reset();
    } else {
      std::int64_t sum = 0;
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ((*group)->Recv(&value, 1, DType::kI64, kAnySource).Wait(), absl::OkStatus());
        sum += value;
      }
      EXPECT_EQ(sum, 3);
      EXPECT_THAT(ErrorOf((*group)->Recv(&value, 1, DType::kI64, kAnySource, {.tag = 3})),
                  AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("every other rank of the group has left"),
                        HasSubstr("from=any tag=3")));
    }
    EXPECT_EQ(world.Barrier().Wait(), absl::OkStatus());
  });
}

INSTANTIATE_TEST_SUITE_P(, PointToPointErrors, ::testing::ValuesIn(WorldKinds()), NameOfWorldKind);

}  // namespace
}  // namespace tutti
