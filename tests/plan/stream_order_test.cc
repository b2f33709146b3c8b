// The orders in which ranks enqueue their plans on streams: every schedule and algorithm without mapped memory ends on
// streams that block, as those of GPUs do.
#include "plan/stream_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/harness/calls.h"
#include "tutti/algorithm.h"
#include "tutti/plan_builder.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

bool IsMessage(const Step& step) { return step.kind == StepKind::kSend || step.kind == StepKind::kRecv; }

// Runs the orders of all ranks as streams do: a message travels once both of its launches are under way, a launch of
// messages ends once all of them have travelled, and messages from one rank to another meet in the order of launching.
class Streams {
 public:
  Streams(const std::vector<Plan>& plans, const std::vector<StreamOrder>& orders)
      : plans_(plans), orders_(orders), place_(plans.size(), 0) {
    for (const Plan& plan : plans) done_.emplace_back(plan.steps.size(), false);
  }

  // What is wrong; empty when all streams come to their ends.
  std::string Run() {
    for (std::size_t p = 0; p < plans_.size(); ++p) {
      if (std::set<StepId>(orders_[p].steps.begin(), orders_[p].steps.end()).size() != plans_[p].steps.size()) {
        return absl::StrCat("rank ", p, " lacks a step");
      }
    }
    for (bool moved = true; moved && wrong_.empty();) {
      moved = false;
      for (std::size_t p = 0; p < plans_.size(); ++p) moved |= Advance(p);
    }
    for (std::size_t p = 0; p < plans_.size() && wrong_.empty(); ++p) {
      if (place_[p] < orders_[p].size()) wrong_ = absl::StrCat("rank ", p, " waits for ever in launch ", place_[p]);
    }
    return wrong_;
  }

 private:
  // The first message of `kind` with `peer` in the present launch of `rank` that has not travelled.
  std::optional<StepId> NextMessage(std::size_t rank, StepKind kind, std::size_t peer) const {
    if (place_[rank] == orders_[rank].size()) return std::nullopt;
    for (const StepId s : orders_[rank].launch(place_[rank])) {
      const Step& step = plans_[rank].steps[s];
      if (step.kind == kind && step.peer == static_cast<Rank>(peer) && !done_[rank][s]) return s;
    }
    return std::nullopt;
  }
  // Lets the messages of the present launch travel whose partners are under way; true when any has.
  bool Travel(std::size_t rank) {
    bool moved = false;
    for (const StepId s : orders_[rank].launch(place_[rank])) {
      const Step& step = plans_[rank].steps[s];
      const auto peer = static_cast<std::size_t>(step.peer);
      const StepKind partner_kind = step.kind == StepKind::kSend ? StepKind::kRecv : StepKind::kSend;
      if (done_[rank][s] || NextMessage(rank, step.kind, peer) != s) continue;
      const std::optional<StepId> partner = NextMessage(peer, partner_kind, rank);
      if (!partner.has_value()) continue;
      if (plans_[peer].steps[*partner].ordinal != step.ordinal) {
        wrong_ = absl::StrCat("rank ", rank, " step ", s, " meets another message");
        return false;
      }
      done_[rank][s] = done_[peer][*partner] = moved = true;
    }
    return moved;
  }
  bool Advance(std::size_t rank) {
    if (place_[rank] == orders_[rank].size()) return false;
    const absl::Span<const StepId> launch = orders_[rank].launch(place_[rank]);
    const Step& first = plans_[rank].steps[launch[0]];
    for (const StepId s : launch) {
      const Step& step = plans_[rank].steps[s];
      if (IsMessage(first) ? !IsMessage(step) : step.kind != first.kind) wrong_ = "a launch has steps of several kinds";
      for (const StepId dependency : plans_[rank].deps_of(step)) {
        const bool together = std::find(launch.begin(), launch.end(), dependency) != launch.end();
        if (together || !done_[rank][dependency]) wrong_ = absl::StrCat("rank ", rank, " step ", s, " comes too early");
      }
    }
    if (!wrong_.empty()) return false;
    if (!IsMessage(first)) {
      for (const StepId s : launch) done_[rank][s] = true;
    } else {
      const bool moved = Travel(rank);
      if (!std::all_of(launch.begin(), launch.end(), [&](StepId s) { return done_[rank][s]; })) return moved;
    }
    ++place_[rank];
    return true;
  }

  const std::vector<Plan>& plans_;
  const std::vector<StreamOrder>& orders_;
  std::vector<std::size_t> place_;  // the launch that the stream of each rank has come to
  std::vector<std::vector<bool>> done_;
  std::string wrong_;
};

// What is wrong with the plans on streams; empty: nothing is, or the plans are for mapped memory.
std::string WrongOnStreams(const std::vector<Plan>& plans) {
  const absl::StatusOr<std::vector<StreamOrder>> orders = StreamOrdersOf(plans);
  if (absl::IsUnimplemented(orders.status())) return "";
  if (!orders.ok()) return orders.status().ToString();
  return Streams(plans, *orders).Run();
}

TEST(StreamOrder, EverySchedule) {
  int served = 0;
  for (const Schedule* schedule : AllSchedules()) {
    // A Send and its Recv are calls of their own.
    if (schedule->collective == Collective::kSend || schedule->collective == Collective::kRecv) continue;
    for (int size = 1; size <= 9; ++size) {
      for (const std::int64_t count : {0, 1, 7, 65537}) {
        for (const WorldCall& call : CallsOf(schedule->collective, DType::kF32, ReduceOp::kSum, count, size)) {
          for (const std::int64_t segment : {std::int64_t{1} << 40, std::int64_t{64} << 10}) {
            const absl::StatusOr<std::vector<Plan>> plans = PlansOf(*schedule, call, size, {.segment_bytes = segment});
            if (!plans.ok()) continue;
            ++served;
            EXPECT_EQ(WrongOnStreams(*plans), "") << schedule->name << " " << call.text() << ", world of " << size;
          }
        }
      }
    }
  }
  EXPECT_GT(served, 1000);
}

TEST(StreamOrder, EveryAlgorithm) {
  int served = 0;
  for (const Algorithm* algorithm : AllAlgorithms()) {
    for (const char* hierarchical : {"", ":hierarchical=true"}) {
      const absl::StatusOr<Strategy> strategy = ParseStrategy(absl::StrCat(algorithm->name, hierarchical));
      if (!strategy.ok()) continue;
      for (const std::vector<int>& nodes : {std::vector<int>{0}, {0, 1}, {0, 0, 1}, {0, 0, 1, 1}, {0, 1, 2, 3, 4}}) {
        const int size = static_cast<int>(nodes.size());
        const PlanOptions options = {.nodes = nodes};
        const auto participants = static_cast<int>(ParticipantsOf(*strategy, size, options).size());
        for (int round = 0; round < RoundsOf(*strategy, participants); ++round) {
          std::vector<Plan> plans;
          for (Rank rank = 0; rank < size; ++rank) {
            absl::StatusOr<Plan> plan = BuildPlan(*strategy, DType::kF32, 4097, rank, size, options, round);
            if (plan.ok()) plans.push_back(*std::move(plan));
          }
          if (plans.size() < nodes.size()) continue;
          ++served;
          EXPECT_EQ(WrongOnStreams(plans), "") << strategy->ToString() << ", world of " << size << ", round " << round;
        }
      }
    }
  }
  EXPECT_GT(served, 20);
}

// The plans of two ranks that `write` writes.
std::vector<Plan> TwoRanks(void (*write)(PlanBuilder&)) {
  std::vector<Plan> plans;
  const CollectiveSpec spec = {.collective = Collective::kAllReduce, .dtype = DType::kF32, .count = 8};
  for (Rank rank = 0; rank < 2; ++rank) {
    PlanBuilder builder("test", spec, rank, 2, {});
    write(builder);
    absl::StatusOr<Plan> plan = std::move(builder).Build();
    EXPECT_TRUE(plan.ok()) << plan.status();
    plans.push_back(*std::move(plan));
  }
  return plans;
}

// Text in which both ranks send first would hang if each message were a launch of its own.
TEST(StreamOrder, MessagesBothWaysAreOneLaunch) {
  const std::vector<Plan> plans = TwoRanks([](PlanBuilder& b) {
    const Ref theirs = b.Scratch(DType::kF32, 8);
    b.Send(1 - b.rank(), b.in());
    b.Recv(1 - b.rank(), theirs);
    b.Reduce(b.out(), {b.in(), theirs}, ReduceOp::kSum);
  });
  const absl::StatusOr<std::vector<StreamOrder>> orders = StreamOrdersOf(plans);
  ASSERT_TRUE(orders.ok()) << orders.status();
  for (const StreamOrder& order : *orders) {
    ASSERT_EQ(order.size(), 2u);
    EXPECT_EQ(order.launch(0).size(), 2u);
    EXPECT_EQ(order.launch(1).size(), 1u);
  }
}

// Rank 1 cannot take rank 0's first message before it has used what its memory holds: both wait for the later launch.
TEST(StreamOrder, ASendWaitsForTheLaunchOfItsRecv) {
  const std::vector<Plan> plans = TwoRanks([](PlanBuilder& b) {
    const Ref memory = b.Scratch(DType::kF32, 8);
    if (b.rank() == 0) {
      b.Send(1, b.in());
      b.Recv(1, b.out());
    } else {
      b.Copy(memory, b.in());
      b.Send(0, memory);
      b.Recv(0, memory);
      b.Copy(b.out(), memory);
    }
  });
  const absl::StatusOr<std::vector<StreamOrder>> orders = StreamOrdersOf(plans);
  ASSERT_TRUE(orders.ok()) << orders.status();
  EXPECT_EQ((*orders)[0].steps, (std::vector<StepId>{1, 0}));
  EXPECT_EQ((*orders)[0].size(), 2u);
  EXPECT_EQ(Streams(plans, *orders).Run(), "");
}

// Ranks that know their own counts alone come to orders in which no rank waits in vain.
TEST(StreamOrder, AnAllToAllVNeedsNoPlansOfOthers) {
  const Schedule& pairwise = **FindSchedule(Collective::kAllToAllV, "pairwise");
  for (int size = 1; size <= 9; ++size) {
    std::vector<Plan> plans;
    std::vector<StreamOrder> orders;
    for (Rank rank = 0; rank < size; ++rank) {
      CollectiveSpec spec = {.collective = Collective::kAllToAllV};
      for (Rank peer = 0; peer < size; ++peer) {
        spec.send_counts.push_back((3 * rank + 5 * peer) % 4);
        spec.recv_counts.push_back((3 * peer + 5 * rank) % 4);
      }
      plans.push_back(BuildPlan(pairwise, spec, rank, size, {}).value());
      const absl::StatusOr<StreamOrder> order = StreamOrderAlone(plans.back());
      ASSERT_TRUE(order.ok()) << order.status();
      EXPECT_LE(order->size(), 2u) << "the copy of the own block, and all messages";
      orders.push_back(*order);
    }
    EXPECT_EQ(Streams(plans, orders).Run(), "") << size;
  }
}

TEST(StreamOrder, StepsStandBeforeOrBehindTheMessagesOfAPlanAlone) {
  const std::vector<Plan> plans = TwoRanks([](PlanBuilder& b) {
    const Ref mine = b.Scratch(DType::kF32, 8);
    const Ref theirs = b.Scratch(DType::kF32, 8);
    b.Recv(1 - b.rank(), theirs);
    b.Copy(mine, b.in());
    b.Scale(mine, mine, 2);
    b.Send(1 - b.rank(), mine);
    b.Copy(b.out(), theirs);
  });
  const absl::StatusOr<StreamOrder> order = StreamOrderAlone(plans[0]);
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_EQ(order->steps, (std::vector<StepId>{1, 2, 0, 3, 4}));
  EXPECT_EQ(order->launches, (std::vector<std::size_t>{1, 2, 4, 5}));
}

// What a message brings cannot be sent on in the launch that brings it.
TEST(StreamOrder, AMessageThatNeedsAnotherNeedsThePlansOfAll) {
  const std::vector<Plan> plans = TwoRanks([](PlanBuilder& b) {
    if (b.rank() == 1) b.Recv(0, b.out());
    b.Send(1 - b.rank(), b.rank() == 1 ? b.out() : b.in());
    if (b.rank() == 0) b.Recv(1, b.out());
  });
  const absl::Status status = StreamOrderAlone(plans[1]).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("rank 1 step 1"), absl::string_view::npos) << status;
}

TEST(StreamOrder, Mistakes) {
  std::vector<Plan> plans = TwoRanks([](PlanBuilder& b) {
    b.Send(1 - b.rank(), b.in());
    b.Recv(1 - b.rank(), b.out());
  });
  plans[1].steps[1].ordinal = 7;
  EXPECT_EQ(StreamOrdersOf(plans).status().code(), absl::StatusCode::kFailedPrecondition);

  // Each rank sends only once it has received.
  std::vector<Plan> circle = TwoRanks([](PlanBuilder& b) {
    b.Recv(1 - b.rank(), b.out());
    b.Send(1 - b.rank(), b.out());
  });
  const absl::Status status = StreamOrdersOf(circle).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("waits in a circle"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace tutti
