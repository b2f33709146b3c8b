// The choice of a schedule, and the table of choices of the default model, which is compared with
// tests/plan/choices.txt. The target `regenerate` (or TUTTI_UPDATE_GOLDEN=1) writes the table anew.
#include "tutti/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/harness/calls.h"
#include "tests/harness/native_machine.h"
#include "tests/harness/source_folder.h"
#include "tutti/algorithm.h"
#include "tutti/cost.h"
#include "tutti/cost_model.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const CostModel> Share(const CostModel& model) { return std::make_shared<const CostModel>(model); }

// The links that ranks may have to each other.
struct Links {
  const char* name;
  bool mapped;
  int ranks_per_node;  // 0: one node
};
constexpr Links kLinks[] = {{"mapped memory", true, 0},
                            {"messages inside a node", false, 0},
                            {"one rank per node", false, 1},
                            {"nodes of 2", true, 2},
                            {"nodes of 8", true, 8}};

PlanOptions OptionsOf(const Links& links, int size) {
  PlanOptions options{.peers_mapped = links.mapped};
  for (Rank rank = 0; rank < size && links.ranks_per_node > 0; ++rank) {
    options.nodes.push_back(rank / links.ranks_per_node);
  }
  return options;
}

// A call of the collective whose longer buffer on a rank has about `bytes`.
CollectiveSpec CallOf(Collective collective, std::int64_t bytes, int size) {
  CollectiveSpec spec{.collective = collective, .count = bytes / 4};
  const bool blocks = collective == Collective::kReduceScatter || collective == Collective::kAllGather ||
                      collective == Collective::kGather || collective == Collective::kScatter ||
                      collective == Collective::kAllToAll;
  if (blocks) spec.count = (spec.count + size - 1) / size;
  if (collective == Collective::kBarrier || collective == Collective::kAllToAllV) spec.count = 0;
  if (collective == Collective::kAllToAllV) {
    spec.send_counts.assign(static_cast<std::size_t>(size), 1);
    spec.recv_counts = spec.send_counts;
  }
  return spec;
}

bool HasChoice(Collective collective) {
  const auto schedules = AllSchedules();
  return std::count_if(schedules.begin(), schedules.end(),
                       [&](const Schedule* schedule) { return schedule->collective == collective; }) > 1;
}

std::string TableOfChoices() {
  std::string table = absl::StrCat("Schedules that are chosen by default.\n", ToString(DefaultCostModel()), "\n");
  constexpr std::int64_t kSizes[] = {4, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20};
  for (const Collective collective : kAllCollectives) {
    if (!HasChoice(collective)) continue;
    for (const Links& links : kLinks) {
      absl::StrAppend(&table, "\n", Name(collective), ", ", links.name, "\n");
      absl::StrAppendFormat(&table, "%6s", "ranks");
      for (const char* bytes : {"4", "1K", "16K", "256K", "4M", "64M"}) {
        absl::StrAppendFormat(&table, " %18s", collective == Collective::kBarrier ? "" : bytes);
        if (collective == Collective::kBarrier) break;
      }
      table += "\n";
      for (const int size : {2, 3, 4, 8, 16, 24, 64, 256}) {
        if (links.ranks_per_node > 1 && size <= links.ranks_per_node) continue;
        absl::StrAppendFormat(&table, "%6d", size);
        for (const std::int64_t bytes : kSizes) {
          const absl::StatusOr<const Schedule*> chosen =
              ChooseSchedule(CallOf(collective, bytes, size), size, OptionsOf(links, size));
          absl::StrAppendFormat(&table, " %18s", chosen.ok() ? (*chosen)->name : "-");
          if (collective == Collective::kBarrier) break;
        }
        table += "\n";
      }
    }
  }
  return table;
}

TEST(GoldenTest, ChoicesAreAsRecorded) {
  const std::filesystem::path path = SourceFolder() / "tests/plan/choices.txt";
  const std::string table = TableOfChoices();
  if (std::getenv("TUTTI_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << table;
  std::ostringstream recorded;
  recorded << std::ifstream(path).rdbuf();
  EXPECT_EQ(table, recorded.str()) << "build the target `regenerate` if that is intended";
}

// The choice does not depend on whether a rank calls in place: of a collective with a root only the root knows, and
// over messages each rank may decide by itself.
TEST(SelectorTest, RanksInPlaceChooseAsOthersDo) {
  for (const Collective collective : kAllCollectives) {
    if (!HasInPlaceForm(collective)) continue;
    for (const Links& links : kLinks) {
      for (const std::int64_t bytes : {4, 1 << 10, 16 << 10, 256 << 10, 4 << 20}) {
        CollectiveSpec call = CallOf(collective, bytes, 6);
        const absl::StatusOr<const Schedule*> others = ChooseSchedule(call, 6, OptionsOf(links, 6));
        call.in_place = true;
        const absl::StatusOr<Selection> in_place = SelectSchedule(call, 6, OptionsOf(links, 6));
        ASSERT_EQ(others.ok(), in_place.ok());
        if (others.ok()) {
          EXPECT_EQ(*others, in_place->schedule) << ToString(call) << ", " << links.name;
        }
      }
    }
  }
}

TEST(SelectorTest, TheFastestServes) {
  const CollectiveSpec spec{.count = 1 << 16};
  const absl::StatusOr<Selection> selection = SelectSchedule(spec, 5, {});
  ASSERT_TRUE(selection.ok()) << selection.status();
  EXPECT_EQ(selection->schedule, selection->candidates[0].schedule);
  EXPECT_EQ(selection->candidates.size(), 9U);
  double before = 0;
  for (const Candidate& candidate : selection->candidates) {
    if (!candidate.refusal.ok()) continue;
    EXPECT_LE(before, candidate.seconds);
    before = candidate.seconds;
    EXPECT_EQ(candidate.seconds, *PredictSeconds(*candidate.schedule, spec, 5, {}));
  }
  EXPECT_EQ(selection->candidates.back().schedule->name, "two_shot");
  EXPECT_THAT(selection->reason(), HasSubstr("direct: refused, the schedule reads and writes peers' memory"));
  EXPECT_THAT(selection->reason(), testing::ContainsRegex("ring: predicted [0-9.]+ µs, 2"));
  EXPECT_EQ(*ChooseSchedule(spec, 5, {}), selection->schedule);
}

// The time that CostOf finds for the plans of all ranks.
double CostOfAll(const Schedule& schedule, const CollectiveSpec& spec, int size, const PlanOptions& options) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < size; ++rank) plans.push_back(*BuildPlan(schedule, spec, rank, size, options));
  return CostOf(plans, options.model(), options.nodes)->seconds;
}

// The predicted time of a schedule in a world that is played whole is the time that CostOf finds.
TEST(SelectorTest, PredictsWhatTheWholeWorldCosts) {
  for (const Schedule* schedule : AllSchedules()) {
    if (schedule->collective == Collective::kSend || schedule->collective == Collective::kRecv ||
        schedule->collective == Collective::kAllToAllV) {
      continue;
    }
    const CollectiveSpec spec = CallOf(schedule->collective, 16 << 10, 4);
    const PlanOptions options = WithNative({.peers_mapped = true, .nodes = NodesFor(*schedule, 4)[0]});
    const absl::StatusOr<double> seconds = PredictSeconds(*schedule, spec, 4, options);
    ASSERT_TRUE(seconds.ok()) << seconds.status();
    const double cost = CostOfAll(*schedule, spec, 4, options);
    EXPECT_NEAR(*seconds, cost, 1e-6 * cost) << Name(schedule->collective) << ":" << schedule->name;
  }
}

// docs/selection.md says how long a call of 8 ranks may be whose plans are played whole.
TEST(SelectorTest, PlansOfEightRanksArePlayedWhole) {
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    for (const Links& links : kLinks) {
      if (links.ranks_per_node == 8) continue;
      const PlanOptions options = OptionsOf(links, 8);
      for (const std::int64_t bytes : {4, 1 << 10, 16 << 10, 256 << 10, 2 << 20, 4 << 20}) {
        const CollectiveSpec call = CallOf(collective, bytes, 8);
        const Selection selection = *SelectSchedule(call, 8, options);
        for (const Candidate& candidate : selection.candidates) {
          if (!candidate.refusal.ok()) continue;
          const absl::string_view name = candidate.schedule->name;
          const bool always = name == "ring" || name == "halving_doubling";
          if (!always && bytes > (name == "hierarchical" ? 256 << 10 : 2 << 20)) continue;
          const double cost = CostOfAll(*candidate.schedule, call, 8, options);
          EXPECT_NEAR(candidate.seconds, cost, 1e-6 * cost) << ToString(call) << ":" << name << ", " << links.name;
        }
      }
    }
  }
}

// Where plans of some ranks stand for those of all, messages between ranks of one node are not taken for messages
// between nodes, whoever of the two has a plan.
TEST(SelectorTest, AWorldThatIsPlayedInPartTakesAboutAsLongAsTheWholeOne) {
  CostModel model = DefaultCostModel();
  model.between_nodes.latency_s = 8.5e-6;
  model.between_nodes.bytes_per_s = 120e6;
  std::vector<std::vector<int>> worlds = {{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}};
  for (const auto& [size, ranks_per_node] : {std::pair(8, 2), {8, 4}, {16, 2}, {16, 4}, {16, 8}}) {
    worlds.push_back(OptionsOf({"", true, ranks_per_node}, size).nodes);
  }
  for (const std::vector<int>& nodes : worlds) {
    const auto size = static_cast<int>(nodes.size());
    const PlanOptions options{.peers_mapped = true, .nodes = nodes, .cost_model = Share(model)};
    const CollectiveSpec call = CallOf(Collective::kAllReduce, 16 << 20, size);
    for (const char* const name : {"halving_doubling", "hierarchical", "recursive_doubling", "ring"}) {
      const Schedule& schedule = **FindSchedule(Collective::kAllReduce, name);
      if (!schedule.supports(call, size, options).ok()) continue;
      const double cost = CostOfAll(schedule, call, size, options);
      EXPECT_NEAR(*PredictSeconds(schedule, call, size, options), cost, 0.25 * cost)
          << name << " on " << size << " ranks, the last on node " << nodes.back();
    }
  }
}

TEST(SelectorTest, TheModelDecides) {
  const CollectiveSpec spec{.count = 1 << 14};
  CostModel model = DefaultCostModel();
  model.within_node = {.latency_s = 1e-3, .bytes_per_s = 1e12};
  EXPECT_EQ((*ChooseSchedule(spec, 8, {.cost_model = Share(model)}))->name, "recursive_doubling");
  model.within_node = {.latency_s = 0, .bytes_per_s = 1e6};
  EXPECT_NE((*ChooseSchedule(spec, 8, {.cost_model = Share(model)}))->name, "recursive_doubling");
  // With signals that are slower than any message, a schedule of messages is chosen.
  model = DefaultCostModel();
  const PlanOptions mapped{.peers_mapped = true};
  EXPECT_EQ((*ChooseSchedule(spec, 8, mapped))->name, "direct");
  model.signal_s = 1;
  EXPECT_NE((*ChooseSchedule(spec, 8, {.peers_mapped = true, .cost_model = Share(model)}))->name, "direct");
}

// Hosts on links as measured at 100 Mb/s, 1 Gb/s and in a data centre; docs/selection.md has the times.
TEST(SelectorTest, OnSlowNetworksFewBytesWeighMoreThanFewSteps) {
  const auto chosen = [](Collective collective, std::int64_t bytes, int size, double bytes_per_s) {
    CostModel model = DefaultCostModel();
    model.between_nodes.latency_s = 8.5e-6;
    model.between_nodes.bytes_per_s = bytes_per_s;
    PlanOptions options = OptionsOf({"", false, 1}, size);
    options.cost_model = Share(model);
    return (*ChooseSchedule(CallOf(collective, bytes, size), size, options))->name;
  };
  for (const double bytes_per_s : {12e6, 120e6}) {
    for (const int size : {4, 8, 16}) {
      for (const std::int64_t bytes : {1 << 20, 4 << 20, 64 << 20}) {
        EXPECT_EQ(chosen(Collective::kAllReduce, bytes, size, bytes_per_s), "ring") << size << " " << bytes;
        EXPECT_EQ(chosen(Collective::kAllGather, bytes, size, bytes_per_s), "ring") << size << " " << bytes;
        EXPECT_EQ(chosen(Collective::kBroadcast, bytes, size, bytes_per_s), "chain") << size << " " << bytes;
        EXPECT_EQ(chosen(Collective::kReduce, bytes, size, bytes_per_s), "chain") << size << " " << bytes;
      }
      const bool steps_weigh_more = size == 16 && bytes_per_s > 100e6;
      EXPECT_EQ(chosen(Collective::kAllReduce, 256 << 10, size, bytes_per_s),
                steps_weigh_more ? "halving_doubling" : "ring")
          << size;
    }
  }
  EXPECT_THAT(chosen(Collective::kAllReduce, 4 << 10, 8, 12e9), testing::AnyOf("one_shot", "recursive_doubling"));
}

// Four hosts. Where the way is long, ranks wait for it once; where the processors' time for each message is what takes
// long, they send fewer messages.
TEST(SelectorTest, FewBytesTravelAtOnceWhereTheWayIsLong) {
  const auto chosen = [](Collective collective, std::int64_t bytes, double latency_s, double message_s) {
    CostModel model = DefaultCostModel();
    model.between_nodes.latency_s = latency_s;
    model.between_nodes.message_s = message_s;
    PlanOptions options = OptionsOf({"", false, 1}, 4);
    options.cost_model = Share(model);
    return (*ChooseSchedule(CallOf(collective, bytes, 4), 4, options))->name;
  };
  EXPECT_EQ(chosen(Collective::kAllReduce, 4, 500e-6, 10e-6), "one_shot");
  EXPECT_EQ(chosen(Collective::kReduceScatter, 64, 500e-6, 10e-6), "pairwise");
  EXPECT_EQ(chosen(Collective::kAllGather, 64, 500e-6, 10e-6), "pairwise");
  EXPECT_EQ(chosen(Collective::kBroadcast, 64, 500e-6, 10e-6), "linear");
  EXPECT_EQ(chosen(Collective::kReduce, 64, 500e-6, 10e-6), "linear");
  EXPECT_EQ(chosen(Collective::kBarrier, 0, 500e-6, 10e-6), "pairwise");
  EXPECT_EQ(chosen(Collective::kAllReduce, 4, 10e-6, 20e-6), "recursive_doubling");
  EXPECT_NE(chosen(Collective::kAllReduce, 1 << 20, 500e-6, 10e-6), "one_shot");
}

// A rank without a plan would be taken to send as its neighbour does, and a chain to wait for the way with each piece.
TEST(SelectorTest, AChainIsPredictedAsItsRanksPlayIt) {
  CostModel model = DefaultCostModel();
  model.between_nodes.latency_s = 600e-6;
  model.between_nodes.bytes_per_s = 120e6;
  for (const int size : {4, 8, 32}) {
    PlanOptions options = OptionsOf({"", false, 1}, size);
    options.cost_model = Share(model);
    for (const Collective collective : {Collective::kReduce, Collective::kBroadcast}) {
      const CollectiveSpec spec = CallOf(collective, 4 << 20, size);
      const Schedule& chain = **FindSchedule(collective, "chain");
      const double played = CostOfAll(chain, spec, size, options);
      const double predicted = *PredictSeconds(chain, spec, size, options);
      EXPECT_NEAR(predicted, played, 0.01 * played) << Name(collective) << " " << size;
    }
  }
}

TEST(SelectorTest, MessagesToAllAtOnceAreForShortBlocksBetweenFewNodes) {
  const auto refusal = [](std::int64_t bytes, int size, const PlanOptions& options) {
    const Schedule& one_shot = **FindSchedule(Collective::kAllReduce, "one_shot");
    return std::string(one_shot.competes(CallOf(Collective::kAllReduce, bytes, size), size, options).message());
  };
  EXPECT_EQ(refusal(32 << 10, 64, OptionsOf({"", false, 1}, 64)), "");
  EXPECT_EQ(refusal(4, 4, {}), "the schedule is not chosen inside a node");
  EXPECT_EQ(refusal(4, 65, OptionsOf({"", false, 1}, 65)), "the schedule is not chosen for more than 64 ranks");
  EXPECT_EQ(refusal((32 << 10) + 4, 4, OptionsOf({"", false, 1}, 4)),
            "the schedule is not chosen for more than 32768 bytes to each rank");
}

// A schedule that does not compete serves a call that names the schedule.
TEST(SelectorTest, SchedulesThatDoNotCompeteAreNotSaidToBeRefused) {
  const CollectiveSpec call = CallOf(Collective::kAllReduce, 4, 4);
  const Selection selection = *SelectSchedule(call, 4, {});
  EXPECT_THAT(selection.reason(), HasSubstr("one_shot: does not compete, the schedule is not chosen inside a node\n"));
  for (const Candidate& candidate : selection.candidates) {
    EXPECT_EQ(candidate.serves, BuildPlan(*candidate.schedule, call, 0, 4, {}).ok()) << candidate.schedule->name;
  }
}

TEST(SelectorTest, TwoShotIsForSumsOf16BitTypesBetweenFewNodes) {
  const Schedule& two_shot = **FindSchedule(Collective::kAllReduce, "two_shot");
  const auto refusal = [&](DType dtype, std::int64_t count, int size) {
    CollectiveSpec call{.collective = Collective::kAllReduce, .count = count};
    call.dtype = dtype;
    return std::string(two_shot.competes(call, size, OptionsOf({"", false, 1}, size)).message());
  };
  EXPECT_EQ(refusal(DType::kF16, 4 * 2048, 4), "");
  EXPECT_EQ(refusal(DType::kF16, 4 * 2048 - 4, 4), "the schedule is not chosen for fewer than 4096 bytes to each rank");
  EXPECT_EQ(refusal(DType::kF16, 1 << 20, 65), "the schedule is not chosen for more than 64 ranks");
  for (const auto& [dtype, size] : {std::pair(DType::kF32, 4), std::pair(DType::kF16, 2)}) {
    EXPECT_EQ(refusal(dtype, 1 << 20, size),
              "the schedule is chosen for sums, averages and products of 16-bit types on 3 ranks or more");
  }
}

// 16-bit sums of three ranks and more travel in 16 bits where every rank sends each rank its chunk; elsewhere partials
// travel, which are fp32.
TEST(SelectorTest, SumsOf16BitTypesTravelAsInputsAndResults) {
  CostModel model = DefaultCostModel();
  model.between_nodes.latency_s = 100e-6;
  model.between_nodes.bytes_per_s = 120e6;
  for (const int size : {3, 4, 8, 16}) {
    PlanOptions options = OptionsOf({"", false, 1}, size);
    options.cost_model = Share(model);
    const auto chosen = [&](Collective collective, ReduceOp op) {
      CollectiveSpec call = CallOf(collective, 16 << 20, size);
      call.dtype = DType::kBF16;
      call.op = op;
      return (*ChooseSchedule(call, size, options))->name;
    };
    EXPECT_EQ(chosen(Collective::kAllReduce, ReduceOp::kSum), "two_shot") << size;
    EXPECT_EQ(chosen(Collective::kReduceScatter, ReduceOp::kAvg), "pairwise") << size;
    EXPECT_EQ(chosen(Collective::kAllReduce, ReduceOp::kMax), "ring") << size;
    EXPECT_EQ(chosen(Collective::kReduceScatter, ReduceOp::kMax), "ring") << size;
  }
}

// The time of a chain grows with every rank, which a prediction that looks at a few ranks does not see.
TEST(SelectorTest, AChainIsChosenInSmallWorldsOnly) {
  CollectiveSpec call = CallOf(Collective::kReduce, 4, 33);
  const Selection selection = *SelectSchedule(call, 33, OptionsOf({"", false, 1}, 33));
  const auto chain = std::find_if(selection.candidates.begin(), selection.candidates.end(),
                                  [](const Candidate& candidate) { return candidate.schedule->name == "chain"; });
  ASSERT_NE(chain, selection.candidates.end());
  EXPECT_EQ(chain->refusal.message(), "a chain is not chosen for more than 32 ranks");
  EXPECT_TRUE(BuildPlan(*chain->schedule, call, 0, 33, {}).ok());
}

// Two ranks on each of 2 or 4 hosts, at 1 Gb/s; docs/selection.md has the times.
TEST(SelectorTest, OnHostsWithSeveralRanksEachCarriesItsShareOfTheWire) {
  CostModel model = DefaultCostModel();
  model.between_nodes.latency_s = 8.5e-6;
  model.between_nodes.bytes_per_s = 118e6;
  for (const int size : {4, 8}) {
    PlanOptions options = OptionsOf({"", true, 2}, size);
    options.cost_model = Share(model);
    for (const std::int64_t bytes : {256 << 10, 16 << 20}) {
      const CollectiveSpec call = CallOf(Collective::kAllReduce, bytes, size);
      EXPECT_EQ((*ChooseSchedule(call, size, options))->name, "hierarchical") << size << " " << bytes;
      // The wire sets the time: the ranks of a host share it.
      const double of_the_wire = 2.0 * (1 - 2.0 / size) * static_cast<double>(bytes) / 118e6;
      const absl::StatusOr<Selection> selection = SelectSchedule(call, size, options);
      EXPECT_NEAR(selection->candidates[0].seconds, of_the_wire, 0.1 * of_the_wire) << size << " " << bytes;
    }
  }
}

// A native transport is chosen where its link is fast, whatever the other ways, and not where its link is slow.
TEST(SelectorTest, TheLinkOfTheNativeTransportDecides) {
  for (const Collective collective : kAllCollectives) {
    for (const Links& links : kLinks) {
      for (const std::int64_t bytes : {4, 16 << 10, 4 << 20}) {
        const CollectiveSpec call = CallOf(collective, bytes, 16);
        const PlanOptions options = OptionsOf(links, 16);
        const auto chosen = [&](const PlanOptions& with) { return *ChooseSchedule(call, 16, with); };
        EXPECT_EQ(chosen(WithNative(options))->name == "native", HasNativeForm(collective)) << ToString(call);
        EXPECT_EQ(chosen(WithNative(options, kSlowNative, kSlowNative)), chosen(options)) << ToString(call);
        // Without a link in the model nothing is predicted, and nothing native is chosen.
        EXPECT_EQ(chosen(WithNative(options, {}, {})), chosen(options)) << ToString(call);
      }
    }
  }
}

TEST(SelectorTest, NativeSchedulesSayWhyTheyDoNotServe) {
  const CollectiveSpec sum{.count = 8};
  EXPECT_THAT(SelectSchedule(sum, 4, {})->reason(),
              HasSubstr("native: refused, no native collectives here: NCCL has them, on memory of GPUs\n"));
  EXPECT_THAT(SelectSchedule(sum, 4, WithNative({}, {}, {}))->reason(),
              HasSubstr("native: refused, the cost model says nothing of native collectives among these ranks"));
  EXPECT_THAT(SelectSchedule({.op = ReduceOp::kMin, .count = 8}, 4, WithNative({}))->reason(),
              HasSubstr("native: refused, the native transport does not reduce f32 with op min as Tutti promises"));
  PlanOptions moves_only = WithNative({});
  moves_only.native.collectives = {Collective::kAllGather};
  EXPECT_THAT(SelectSchedule(sum, 4, moves_only)->reason(),
              HasSubstr("native: refused, the native transport does not perform all_reduce as a whole"));
}

// Inside a node the fast native link is taken, and between nodes messages.
TEST(SelectorTest, PartsOfAPlanAreNativeWhereTheirLinkIsFast) {
  const PlanOptions options = WithNative({.nodes = {0, 0, 1, 1}}, kFastNative, kSlowNative);
  const auto natives_of = [&](const char* strategy, Rank rank) {
    const Plan plan = *BuildPlan(*ParseStrategy(strategy), DType::kF32, 4096, rank, 4, options);
    return std::count_if(plan.steps.begin(), plan.steps.end(), [&](const Step& step) {
      EXPECT_TRUE(step.kind != StepKind::kNative || plan.group_of(step).size() == 2);
      return step.kind == StepKind::kNative;
    });
  };
  for (const char* strategy : {"gradient_allreduce:hierarchical=true", "bytegrad", "async", "decentralized"}) {
    for (const Rank rank : {0, 1, 2, 3}) EXPECT_EQ(natives_of(strategy, rank), 2) << strategy << " " << rank;
  }
  EXPECT_EQ(natives_of("gradient_allreduce:hierarchical=false", 1), 0);
}

// The chunks of 3 ranks differ in length, and so do their messages.
TEST(SelectorTest, MessagesOfCodecsAreMovedNativelyWhereThatIsFast) {
  for (const bool mapped : {false, true}) {
    const auto kinds_of = [&](const PlanOptions& options) {
      const Plan plan = *BuildPlan(*ParseStrategy("bytegrad"), DType::kF32, 4099, 1, 3, options);
      std::vector<int> kinds(static_cast<std::size_t>(StepKind::kNative) + 1);
      for (const Step& step : plan.steps) ++kinds[static_cast<std::size_t>(step.kind)];
      return kinds;
    };
    const PlanOptions plain{.peers_mapped = mapped};
    const std::vector<int> native = kinds_of(WithNative(plain));
    EXPECT_EQ(native[static_cast<std::size_t>(StepKind::kNative)], 2);
    for (const StepKind kind : {StepKind::kSend, StepKind::kRecv, StepKind::kSignal, StepKind::kWait}) {
      EXPECT_EQ(native[static_cast<std::size_t>(kind)], 0) << Name(kind);
    }
    EXPECT_EQ(kinds_of(WithNative(plain, kSlowNative, kSlowNative)), kinds_of(plain));
    PlanOptions gathers_only = WithNative(plain);
    gathers_only.native.collectives = {Collective::kAllGather};
    EXPECT_EQ(kinds_of(gathers_only), kinds_of(plain));
  }
}

TEST(SelectorTest, RanksThatSpeakOfDifferentNodesChooseAlike) {
  const CollectiveSpec spec{.count = 1 << 12};
  const absl::StatusOr<Selection> a = SelectSchedule(spec, 6, {.nodes = {0, 0, 1, 1, 2, 2}});
  const absl::StatusOr<Selection> b = SelectSchedule(spec, 6, {.nodes = {7, 7, 9, 9, 4, 4}});
  for (std::size_t i = 0; i < a->candidates.size(); ++i) {
    EXPECT_EQ(a->candidates[i].schedule, b->candidates[i].schedule);
    EXPECT_EQ(a->candidates[i].seconds, b->candidates[i].seconds);
  }
}

TEST(SelectorTest, CountsOfOneRankDoNotMatter) {
  CollectiveSpec few = CallOf(Collective::kAllToAllV, 0, 3);
  CollectiveSpec many = few;
  many.send_counts = {1, 1 << 20, 5};
  const PlanOptions mapped{.peers_mapped = true};
  for (const char* const name : {"direct", "pairwise", "staged"}) {
    const Schedule& schedule = **FindSchedule(Collective::kAllToAllV, name);
    EXPECT_EQ(*PredictSeconds(schedule, few, 3, mapped), *PredictSeconds(schedule, many, 3, mapped));
  }
  for (const CollectiveSpec& spec : {few, many}) {
    const absl::StatusOr<const Schedule*> chosen = ChooseSchedule(spec, 3, mapped);
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_EQ((*chosen)->name, "direct");
    EXPECT_EQ((*ChooseForPrivateBuffers(**chosen, spec, 3, mapped))->name, "staged");
    EXPECT_EQ((*ChooseSchedule(spec, 3, {}))->name, "pairwise");
  }
}

TEST(SelectorTest, LargeWorldsArePlayedInPart) {
  for (const Collective collective : kAllCollectives) {
    const CollectiveSpec spec = CallOf(collective, 1 << 20, 4096);
    const PlanOptions options = OptionsOf(kLinks[3], 4096);
    const absl::StatusOr<Selection> selection = SelectSchedule({.collective = collective,
                                                                .count = spec.count,
                                                                .root = 1,
                                                                .send_counts = spec.send_counts,
                                                                .recv_counts = spec.recv_counts},
                                                               4096, options);
    ASSERT_TRUE(selection.ok()) << selection.status();
    EXPECT_GT(selection->candidates[0].seconds, 0) << Name(collective);
  }
}

TEST(SelectorTest, NothingIsPredictedForACallThatNobodyServes) {
  // A world of 0 ranks does not exist: every prediction is refused.
  const absl::StatusOr<Selection> selection = SelectSchedule({.collective = Collective::kAllReduce, .root = 0}, 0, {});
  EXPECT_FALSE(selection.ok());
  EXPECT_THAT(std::string(selection.status().message()), HasSubstr("no schedule serves all_reduce"));
}

TEST(SelectorTest, PartsOfAPlanAreChosenForTheirOwnNodes) {
  // Leaders of nodes are further apart than the ranks of one node.
  std::vector<int> seen;
  PlanBuilder b("test", {.count = 4}, 2, 4, {.nodes = {5, 5, 6, 6}});
  b.WithinGroup({0, 2}, {.count = 4}, b.in(), b.out(), [&](PlanBuilder& part) { seen = part.options().nodes; });
  EXPECT_EQ(seen, (std::vector<int>{5, 6}));
  EXPECT_EQ(b.options().nodes, (std::vector<int>{5, 5, 6, 6}));
}

}  // namespace
}  // namespace tutti
