// Timelines of hand-made plans: lanes, bars and arrows; tests/cli/plan/timelines.py looks at pictures.
#include "bindings/cli/plan/timeline.h"

#include <string>
#include <utility>
#include <vector>

#include "bindings/cli/plan/phases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tutti/plan_builder.h"
#include "tutti/schedule.h"

namespace tutti::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr CostModel kModel{.within_node = {.latency_s = 1, .bytes_per_s = 10, .message_s = 2},
                           .between_nodes = {},
                           .ranks_per_node = 0,
                           .step_s = 0,
                           .signal_s = 3,
                           .memory_bytes_per_s = 10};

// Each of `size` ranks writes its plan of a broadcast of 20 elements (80 bytes).
template <typename Author>
std::vector<Plan> Plans(int size, const Author& author, std::int64_t segment_bytes = 1 << 20) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < size; ++rank) {
    PlanBuilder b("test", {.collective = Collective::kBroadcast, .count = 20}, rank, size,
                  {.segment_bytes = segment_bytes, .peers_mapped = true});
    author(b);
    absl::StatusOr<Plan> plan = std::move(b).Build();
    EXPECT_TRUE(plan.ok()) << plan.status();
    plans.push_back(*std::move(plan));
  }
  return plans;
}

Timeline TimelineOfAll(const std::vector<Plan>& plans, Rank first = 0) {
  absl::StatusOr<Timeline> timeline = TimelineOf(plans, kModel, {}, first);
  EXPECT_TRUE(timeline.ok()) << timeline.status();
  return timeline.ok() ? *std::move(timeline) : Timeline();
}

std::vector<std::string> LabelsOf(const Lane& lane) {
  std::vector<std::string> labels;
  for (const Bar& bar : lane.bars) labels.push_back(bar.labels[0]);
  return labels;
}

void SendOnce(PlanBuilder& b) {
  if (b.rank() == 0) b.Send(1, b.in());
  if (b.rank() == 1) b.Recv(0, b.out());
}

TEST(PlanTimelineTest, ShowsAMessage) {
  const Timeline timeline = TimelineOfAll(Plans(2, SendOnce));
  EXPECT_DOUBLE_EQ(timeline.seconds, 2 + 1 + 8 + 2);
  EXPECT_THAT(LabelsOf(timeline.lanes[0]), ElementsAre("send 80 bytes to 1", "waits"));  // for the link
  EXPECT_THAT(LabelsOf(timeline.lanes[1]), ElementsAre("waits for rank 0", "recv 80 bytes from 0"));
  EXPECT_THAT(timeline.kinds, ElementsAre(StepKind::kSend, StepKind::kRecv, StepKind::kWait));
  ASSERT_EQ(timeline.arrows.size(), 1);
  const Arrow& arrow = timeline.arrows[0];
  EXPECT_EQ(arrow.from_lane, 0);
  EXPECT_EQ(arrow.to_lane, 1);
  EXPECT_DOUBLE_EQ(arrow.left, 2);
  EXPECT_DOUBLE_EQ(arrow.taken, 2 + 1 + 8);
  EXPECT_EQ(arrow.bytes, 80);
  EXPECT_FALSE(arrow.signal);
  EXPECT_THAT(timeline.notes, ElementsAre());
}

TEST(PlanTimelineTest, ShowsTheLastSignalThatARankWaitsFor) {
  const Timeline timeline = TimelineOfAll(Plans(3, [](PlanBuilder& b) {
    if (b.rank() == 1) b.Copy(b.Scratch(b.in().dtype, 10), b.out().Elements(0, 10));
    b.Signal();
    if (b.rank() == 0) b.WaitAll();
  }));
  EXPECT_THAT(LabelsOf(timeline.lanes[0]), ElementsAre("signal", "waits"));
  ASSERT_EQ(timeline.arrows.size(), 1);
  EXPECT_TRUE(timeline.arrows[0].signal);
  EXPECT_EQ(timeline.arrows[0].from_lane, 1);  // rank 1 comes last, after its copy
  EXPECT_EQ(timeline.arrows[0].to_lane, 0);
  EXPECT_DOUBLE_EQ(timeline.arrows[0].taken - timeline.arrows[0].left, 3);
}

// 80 bytes in 10 segments, four times: 40 messages, which are one bar on each side and one arrow.
TEST(PlanTimelineTest, FoldsSegments) {
  const Timeline timeline = TimelineOfAll(Plans(
      2,
      [](PlanBuilder& b) {
        for (int again = 0; again < 4; ++again) SendOnce(b);
      },
      8));
  EXPECT_THAT(LabelsOf(timeline.lanes[0])[0], "40 × send 8 bytes to 1");
  EXPECT_THAT(LabelsOf(timeline.lanes[1]).back(), "40 × recv 8 bytes from 0");
  EXPECT_EQ(timeline.lanes[0].bars[0].steps, 40);
  ASSERT_EQ(timeline.arrows.size(), 1);
  EXPECT_EQ(timeline.arrows[0].count, 40);
  EXPECT_EQ(timeline.arrows[0].bytes, 320);
}

TEST(PlanTimelineTest, SharesOfABarSumToOne) {
  const std::vector<Plan> plans = [] {
    const CollectiveSpec spec{.count = 1 << 20};
    std::vector<Plan> all;
    for (Rank rank = 0; rank < 4; ++rank) {
      all.push_back(*BuildPlan(**FindSchedule(Collective::kAllReduce, "ring"), spec, rank, 4, {.segment_bytes = 4096}));
    }
    return all;
  }();
  const Timeline timeline = *TimelineOf(plans, DefaultCostModel(), {}, 0);
  std::size_t steps = 0;
  for (const Lane& lane : timeline.lanes) {
    EXPECT_LT(lane.bars.size(), 200);
    for (const Bar& bar : lane.bars) {
      double sum = 0;
      for (const BarShare& share : bar.shares) sum += share.part;
      EXPECT_NEAR(sum, 1, 1e-3);
      steps += bar.steps;
    }
  }
  std::size_t all = 0;
  for (const Plan& plan : plans) all += plan.steps.size();
  EXPECT_EQ(steps, all);  // a ring of messages waits by no step
}

TEST(PlanTimelineTest, TellsWhichArrowsAreLeftOut) {
  const std::vector<Plan> plans = Plans(32, [](PlanBuilder& b) {
    for (Rank peer = 0; peer < b.size(); ++peer) {
      if (peer == b.rank()) continue;
      b.Send(peer, b.Scratch(b.in().dtype, 20));
      b.Recv(peer, b.Scratch(b.in().dtype, 20));
    }
  });
  const Timeline timeline = TimelineOfAll(plans);
  EXPECT_EQ(timeline.lanes.size(), 32);
  for (const Arrow& arrow : timeline.arrows) EXPECT_TRUE(arrow.from_lane == 0 || arrow.to_lane == 0);
  ASSERT_EQ(timeline.notes.size(), 1);
  EXPECT_THAT(timeline.notes[0], testing::ContainsRegex("Of [0-9]+ arrows only those to and from rank 0 are drawn"));
}

TEST(PlanTimelineTest, TellsWhichRanksAreLeftOut) {
  const std::vector<Plan> plans = Plans(40, SendOnce);
  const Timeline timeline = TimelineOfAll(plans);
  EXPECT_EQ(timeline.lanes.size(), 16);
  EXPECT_EQ(timeline.arrows.size(), 1);
  ASSERT_EQ(timeline.notes.size(), 1);
  EXPECT_THAT(timeline.notes[0], HasSubstr("Drawn: ranks 0…15 of 40 (--rank R: from rank R on)"));
  const Timeline last = TimelineOfAll(plans, 30);
  ASSERT_EQ(last.lanes.size(), 16);
  EXPECT_EQ(last.lanes.front().rank, 24);
  EXPECT_EQ(last.lanes.back().rank, 39);
  EXPECT_EQ(last.arrows.size(), 0);
  const Timeline part = TimelineOfAll({plans.begin(), plans.begin() + 2});
  ASSERT_EQ(part.notes.size(), 2);
  EXPECT_THAT(part.notes[1], HasSubstr("Only the plans of 2 ranks were simulated"));
}

TEST(PlanTimelineTest, SizesInWords) {
  const std::pair<std::int64_t, const char*> sizes[] = {{0, "0 bytes"},
                                                        {1, "1 byte"},
                                                        {1023, "1023 bytes"},
                                                        {1024, "1 KiB"},
                                                        {1536, "1.5 KiB"},
                                                        {66 << 10, "66 KiB"},
                                                        {1 << 20, "1 MiB"},
                                                        {(1 << 20) - 1, "1 MiB"},
                                                        {64 << 20, "64 MiB"},
                                                        {5 << 19, "2.5 MiB"},
                                                        {std::int64_t{1} << 40, "1 TiB"}};
  for (const auto& [bytes, words] : sizes) EXPECT_EQ(BytesInWords(bytes), words);
}

}  // namespace
}  // namespace tutti::cli
