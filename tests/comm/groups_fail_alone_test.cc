// Two groups over the same ranks: one fails, the other goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/harness/world.h"

namespace tutti {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kSize = 3;
constexpr int kRounds = 3;  // each rank is the culprit once
constexpr std::int64_t kSmall = 3;
constexpr std::int64_t kLarge = 200'001;  // elements; a Send of so many ends only when the receiver takes the message

struct Case {
  std::string name;
  WorldOptions options;
  std::int64_t count = 0;
};

void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

// Sums rank + 1 over the group, `times` times.
absl::Status Sums(Communicator& group, std::int64_t count, int times) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (int i = 0; i < times; ++i) {
    std::fill(values.begin(), values.end(), static_cast<float>(group.rank() + 1));
    absl::Status status = group.AllReduce(values.data(), values.data(), count, DType::kF32, ReduceOp::kSum).Wait();
    if (!status.ok()) return status;
    for (const float value : {values.front(), values[values.size() / 2], values.back()}) {
      if (value != 6.0f) return absl::DataLossError(absl::StrCat("the sum is ", value));
    }
  }
  return absl::OkStatus();
}

// Lets one of two groups fail in every round, each time by another rank, while the other group is at work.
class GroupsFailAloneTest : public ::testing::TestWithParam<Case> {
 protected:
  using Body = std::function<void(std::unique_ptr<Communicator>& bad, Rank culprit)>;

  static void Run(const Body& let_fail) {
    const Case& c = GetParam();
    RunWorld(kSize, c.options, [&](Communicator& world) {
      absl::StatusOr<std::unique_ptr<Communicator>> good = world.Group({0, 1, 2}, "good");
      ASSERT_TRUE(good.ok()) << good.status();
      for (int round = 0; round < kRounds; ++round) {
        absl::StatusOr<std::unique_ptr<Communicator>> bad = world.Group({0, 1, 2}, absl::StrCat("bad ", round));
        ASSERT_TRUE(bad.ok()) << bad.status();
        ASSERT_EQ(Sums(**bad, c.count, 1), absl::OkStatus());
        ASSERT_EQ(world.Barrier().Wait(), absl::OkStatus());  // no rank is in that sum any more
        std::thread at_work([&] { EXPECT_EQ(Sums(**good, c.count, 3), absl::OkStatus()) << "round " << round; });
        let_fail(*bad, round % kSize);
        bad->reset();
        at_work.join();
        ASSERT_EQ(Sums(**good, kSmall, 1), absl::OkStatus()) << "round " << round;
      }
      EXPECT_EQ(Sums(world, c.count, 2), absl::OkStatus());
      EXPECT_EQ(world.status(), absl::OkStatus());
      EXPECT_EQ((*good)->status(), absl::OkStatus());
    });
  }

  static std::int64_t count() { return GetParam().count; }
};

TEST_P(GroupsFailAloneTest, ByAbort) {
  Run([](std::unique_ptr<Communicator>& bad, Rank culprit) {
    if (bad->rank() == culprit) {
      bad->Abort(absl::AbortedError("enough"));
      EXPECT_THAT(Sums(*bad, count(), 1).ToString(), HasSubstr("ABORTED: enough"));
    } else {
      EXPECT_THAT(Sums(*bad, count(), 1).ToString(), HasSubstr("ABORTED: enough (told by rank "));
      EXPECT_FALSE(bad->status().ok());
    }
  });
}

TEST_P(GroupsFailAloneTest, ByTimeout) {
  Run([](std::unique_ptr<Communicator>& bad, Rank culprit) {
    if (bad->rank() == culprit) {
      // This rank has no call under way and hears of the failure from the others.
      while (bad->status().ok()) std::this_thread::yield();
    } else {
      std::vector<float> values(static_cast<std::size_t>(count()));
      const absl::Status status = bad->AllReduce(values.data(), values.data(), count(), DType::kF32, ReduceOp::kSum,
                                                 {.timeout = absl::Milliseconds(60)})
                                      .Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    }
    EXPECT_EQ(bad->status().code(), absl::StatusCode::kDeadlineExceeded) << bad->status();
  });
}

TEST_P(GroupsFailAloneTest, ByMismatch) {
  Run([](std::unique_ptr<Communicator>& bad, Rank culprit) {
    std::vector<float> values(static_cast<std::size_t>(count() + 1));
    const std::int64_t its_count = bad->rank() == culprit ? count() + 1 : count();
    // Between nodes a mismatch shows only as a timeout: ranks wait in vain for each other's messages.
    const bool nodes = GetParam().options.ranks_per_node > 0;
    const absl::Status status = bad->AllReduce(values.data(), values.data(), its_count, DType::kF32, ReduceOp::kSum,
                                               {.timeout = nodes ? absl::Milliseconds(60) : absl::ZeroDuration()})
                                    .Wait();
    EXPECT_EQ(status.code(), nodes ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kInvalidArgument)
        << status;
  });
}

TEST_P(GroupsFailAloneTest, ByDestructionWithCallsPending) {
  Run([](std::unique_ptr<Communicator>& bad, Rank culprit) {
    std::vector<float> values(static_cast<std::size_t>(count()));
    std::vector<float> message(static_cast<std::size_t>(count()));
    std::vector<float> received(static_cast<std::size_t>(count()));
    const Rank next = (bad->rank() + 1) % kSize;
    Work sent = bad->Send(message.data(), count(), DType::kF32, next);  // a message that nobody receives
    if (bad->rank() == culprit) {
      Work never = bad->Recv(received.data(), count(), DType::kF32, next);
      bad.reset();
      EXPECT_TRUE(sent.done());
      EXPECT_THAT(never.Wait().ToString(), HasSubstr("destroyed a communicator with calls under way"));
      return;
    }
    Work sum = bad->AllReduce(values.data(), values.data(), count(), DType::kF32, ReduceOp::kSum);
    Work waits = bad->Barrier();
    EXPECT_THAT(waits.Wait().ToString(),
                AnyOf(HasSubstr("destroyed a communicator with calls under way"), HasSubstr("has left")));
    EXPECT_FALSE(sum.Wait().ok());
    (void)sent.Wait();  // the Send of a small message may have ended well
  });
}

// Ranks that make a new group of the members of a failed one hear of a member that has destroyed the failed one.
TEST_P(GroupsFailAloneTest, AMemberThatHasDestroyedTheFailedGroupIsNamed) {
  RunWorld(kSize, GetParam().options, [](Communicator& world) {
    absl::StatusOr<std::unique_ptr<Communicator>> bad = world.Group({0, 1, 2}, "bad");
    ASSERT_TRUE(bad.ok()) << bad.status();
    ASSERT_EQ(world.Barrier().Wait(), absl::OkStatus());  // all ranks have the group
    if (world.rank() == 1) (*bad)->Abort(absl::AbortedError("enough"));
    EXPECT_FALSE(Sums(**bad, count(), 1).ok());
    if (world.rank() == 2) {
      bad->reset();
    } else {
      const absl::Status status = (*bad)->Group({0, 1, 2}, "again").status();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2"));
    }
    EXPECT_EQ(world.Barrier().Wait(), absl::OkStatus());
  });
}

TEST_P(GroupsFailAloneTest, TheWorldTooFailsAlone) {
  RunWorld(kSize, GetParam().options, [](Communicator& world) {
    absl::StatusOr<std::unique_ptr<Communicator>> good = world.Group({0, 1, 2}, "good");
    ASSERT_TRUE(good.ok()) << good.status();
    if (world.rank() == 1) world.Abort(absl::CancelledError("enough"));
    EXPECT_THAT(Sums(world, count(), 1).ToString(), HasSubstr("CANCELLED: enough"));
    EXPECT_EQ(Sums(**good, count(), 3), absl::OkStatus());
    // The survivors of a failure make their next group from the communicator that has failed.
    absl::StatusOr<std::unique_ptr<Communicator>> next = world.Group({0, 1, 2}, "next");
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(Sums(**next, count(), 3), absl::OkStatus());
  });
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const std::string& transport : WorldTransports()) {
    for (const std::int64_t count : {kSmall, kLarge}) {
      const std::string name = absl::StrCat(transport, count == kSmall ? "_small" : "_large");
      cases.push_back({absl::StrCat(name, "_mapped"), {.transport = transport}, count});
      cases.push_back({absl::StrCat(name, "_messages"),
                       {.transport = transport, .communicator = {.mapping = CommunicatorOptions::Mapping::kNever}},
                       count});
      cases.push_back({absl::StrCat(name, "_nodes"), {.transport = transport, .ranks_per_node = 1}, count});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, GroupsFailAloneTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tutti
