// The text of plans for small worlds, compared with tests/plan/golden/*.txt: a change of a schedule shows as a diff.
// The target `regenerate` (or TUTTI_UPDATE_GOLDEN=1) writes the files anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/harness/calls.h"
#include "tests/harness/native_machine.h"
#include "tests/harness/source_folder.h"
#include "tutti/print.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

const std::filesystem::path kFolder = SourceFolder() / "tests/plan/golden";

std::string TextOf(const Schedule& schedule) {
  std::string text;
  // Blocks of an all_to_all_v that are empty, short or long.
  const std::int64_t count = schedule.collective == Collective::kAllToAllV ? 33 : 4;
  const auto append = [&](int size, const std::vector<int>& nodes) {
    const std::vector<WorldCall> calls = CallsOf(schedule.collective, DType::kF32, ReduceOp::kAvg, count, size);
    const absl::StatusOr<std::vector<Plan>> plans =
        PlansOf(schedule, calls[0], size, WithNative({.peers_mapped = true, .nodes = nodes}));
    if (!plans.ok()) {
      absl::StrAppend(&text, size, " ranks: ", plans.status().message(), "\n");
      return;
    }
    for (const Plan& plan : *plans) absl::StrAppend(&text, ToText(plan), "\n");
  };
  const std::vector<std::vector<int>> nodes_of_4 = NodesFor(schedule, 4);
  if (!nodes_of_4[0].empty()) {
    append(4, nodes_of_4[0]);
    return text;
  }
  for (const int size : {2, 3}) append(size, {});
  return text;
}

TEST(GoldenTest, PlansAreAsRecorded) {
  const bool update = std::getenv("TUTTI_UPDATE_GOLDEN") != nullptr;
  std::set<std::string> expected;
  for (const Schedule* schedule : AllSchedules()) {
    const std::string name = absl::StrCat(Name(schedule->collective), "_", schedule->name, ".txt");
    expected.insert(name);
    const std::string text = TextOf(*schedule);
    if (update) std::ofstream(kFolder / name) << text;
    std::ostringstream recorded;
    recorded << std::ifstream(kFolder / name).rdbuf();
    EXPECT_EQ(text, recorded.str()) << name << " differs; build the target `regenerate` if that is intended";
  }
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    EXPECT_EQ(expected.count(entry.path().filename().string()), 1u) << entry.path() << " is of no schedule";
  }
}

TEST(GraphvizTest, DrawsStepsDependenciesAndMessages) {
  const WorldCall call = CallsOf(Collective::kSend, DType::kF32, ReduceOp::kSum, 1, 2)[0];
  std::vector<Plan> plans(2);
  for (Rank rank : {0, 1}) {
    PlanBuilder b("test", call.specs[rank], rank, 2, {});
    rank == 0 ? b.Send(1, b.in()) : b.Recv(0, b.out());
    plans[rank] = *std::move(b).Build();
  }
  const std::string graph = ToGraphviz(plans);
  const std::size_t end_of_legend = graph.find("  subgraph cluster_0");
  ASSERT_NE(end_of_legend, std::string::npos) << graph;
  const std::string legend = graph.substr(0, end_of_legend);
  for (const char* text :
       {"digraph plan {\n  rankdir=LR;\n  node [shape=box, fontname=monospace, fontsize=10];\n",
        "legend: a box is a step, a frame is a rank", "legend_first -> legend_next;",
        "legend_send -> legend_recv [style=dashed];", "legend_native -> legend_same [style=dashed, dir=none];"}) {
    EXPECT_NE(legend.find(text), std::string::npos) << text << " in\n" << legend;
  }
  EXPECT_EQ(graph.substr(end_of_legend),
            "  subgraph cluster_0 {\n    label=\"test rank 0\";\n"
            "    r0_0 [label=\"0: send in[0,4) f32 to 1 #0\"];\n  }\n"
            "  subgraph cluster_1 {\n    label=\"test rank 1\";\n"
            "    r1_0 [label=\"0: recv out[0,4) f32 from 0 #0\"];\n  }\n"
            "  r0_0 -> r1_0 [style=dashed];\n}\n");
}

TEST(GraphvizTest, DrawsNativeStepsThatAreOneCollective) {
  std::vector<Plan> plans;
  for (Rank rank : {0, 1, 2}) {
    PlanBuilder b("test", {.count = 1}, rank, 3, {});
    const CollectiveSpec part{.collective = Collective::kReduce, .count = 1, .root = 1};
    if (rank > 0) {
      b.WithinGroup({2, 1}, part, b.in(), b.out().Elements(0, rank == 1 ? 1 : 0),
                    [&](PlanBuilder& inner) { inner.Native(part, inner.in(), inner.out()); });
    }
    b.Native({.op = ReduceOp::kAvg, .count = 1}, b.in(), b.out());
    plans.push_back(*std::move(b).Build());
  }
  EXPECT_EQ(ToText(plans[2], plans[2].steps[0]), "native reduce sum(in[0,4) f32), root 1 among 2 1 #0");
  EXPECT_EQ(ToText(plans[1], plans[1].steps[0]), "native out[0,4) f32 = reduce sum(in[0,4) f32), root 1 among 2 1 #0");
  EXPECT_EQ(ToText(plans[0], plans[0].steps[0]), "native out[0,4) f32 = all_reduce avg(in[0,4) f32) / 3 among all #0");
  const std::string graph = ToGraphviz(plans);
  for (const char* line : {"r0_0 -> r1_1 [style=dashed, dir=none];", "r1_1 -> r2_1 [style=dashed, dir=none];",
                           "r1_0 -> r2_0 [style=dashed, dir=none];", "r1_0 -> r1_1;"}) {
    EXPECT_NE(graph.find(line), std::string::npos) << line << " in\n" << graph;
  }
}

}  // namespace
}  // namespace tutti
