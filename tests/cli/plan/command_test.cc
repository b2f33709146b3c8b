// tutti plan, as a user runs it.
#include "bindings/cli/command.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/base/config.h"
#include "bindings/cli/plan/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cli/command_run.h"
#include "tests/harness/calls.h"
#include "tests/store/temporary_directory.h"
#include "tutti/algorithm.h"
#include "tutti/extension.h"
#include "tutti/plan_builder.h"
#include "tutti/schedule.h"
#include "tutti/version.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;

TEST(PlanTest, PrintsAndVerifiesASchedule) {
  const CommandRun run = RunTutti("plan all_reduce:ring --ranks 3 --count 7 --rank 1 --verify");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("all_reduce:ring rank 1 of 3"));
  EXPECT_THAT(run.out, HasSubstr("reduce"));
  EXPECT_THAT(run.out, HasSubstr("verified: all 3 ranks"));
}

TEST(PlanTest, SegmentsHaveALeastSize) {
  const CommandRun run = RunTutti("plan reduce:binomial --ranks 4 --segment 2");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--segment: 2 must be 8 bytes or more"));
}

TEST(PlanTest, SaysWhatTheProofLeavesOut) {
  for (const char* const lossy : {"bytegrad", "gradient_allreduce:codec=bf16"}) {
    EXPECT_THAT(RunTutti(std::string("plan --verify --ranks 2 ") + lossy).out,
                HasSubstr("exactly what the collective promises, but for what codecs and casts lose; no deadlock"));
  }
  // Rank 1 encodes nothing, but the leader of its node does.
  EXPECT_THAT(RunTutti("plan --verify --ranks 4 --ranks-per-node 2 --rank 1 bytegrad").out,
              HasSubstr("but for what codecs and casts lose"));
  EXPECT_THAT(RunTutti("plan --verify --ranks 2 all_reduce:ring").out,
              HasSubstr("exactly what the collective promises; no deadlock"));
}

TEST(PlanTest, ShowsEveryScheduleAndAlgorithm) {
  for (const Schedule* schedule : AllSchedules()) {
    const std::string spec = std::string(Name(schedule->collective)) + ":" + std::string(schedule->name);
    // send and recv have equal schedules.
    const std::string native = schedule->name == "native" ? " --native" : "";
    const bool is_for_nodes = !NodesFor(*schedule, 4)[0].empty();
    const std::string ranks = is_for_nodes ? " --ranks 4 --ranks-per-node 2" : " --ranks 2";
    const CommandRun run = RunTutti("plan " + spec + ranks + " --bytes 64 --verify" + native);
    EXPECT_EQ(run.exit_code, 0) << spec << ": " << run.err;
  }
  for (const Algorithm* algorithm : AllAlgorithms()) {
    const CommandRun run = RunTutti("plan " + std::string(algorithm->name) + " --ranks 3 --bytes 64K --verify");
    EXPECT_EQ(run.exit_code, 0) << algorithm->name << ": " << run.err;
  }
}

TEST(PlanTest, ExplainsWhatWouldBeChosen) {
  const CommandRun run = RunTutti("plan all_reduce --ranks 4 --bytes 1M --messages");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("chosen: "));
  EXPECT_THAT(run.out, testing::ContainsRegex("\nring: predicted [0-9.]+ µs, 2"));
  EXPECT_THAT(run.out, HasSubstr("\ndirect: refused, the schedule reads and writes peers' memory"));
  EXPECT_THAT(run.out, HasSubstr("\none_shot: does not compete, the schedule is not chosen inside a node"));
}

TEST(PlanTest, ShowsWhatNcclWouldPerform) {
  const CommandRun run = RunTutti(
      "plan gradient_allreduce:hierarchical=true --ranks 4 --ranks-per-node 2 --bytes 64K "
      "--native --native-latency 1e-9 --native-bandwidth 1e13 --cost --verify");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("native  out[0,65536) f32 = reduce sum(out[0,65536) f32), root 0 among 0 1 #0"));
  EXPECT_THAT(run.out, HasSubstr("verified: all 4 ranks"));
  EXPECT_THAT(RunTutti("plan all_reduce --ranks 4 --bytes 64K").out,
              HasSubstr("native: refused, no native collectives here: NCCL has them, on memory of GPUs"));
  EXPECT_THAT(RunTutti("plan all_reduce --ranks 4 --bytes 64K --native").out,
              HasSubstr("native: refused, the cost model says nothing of native collectives"));
}

TEST(PlanTest, ChoosesForTheLinksAtHand) {
  const std::string call = "plan all_reduce --ranks 8 --bytes 64K --messages ";
  EXPECT_THAT(RunTutti(call + "--latency 1e-3").out, testing::StartsWith("chosen: recursive_doubling\n"));
  EXPECT_THAT(RunTutti(call + "--latency 0 --bandwidth 1e6").out,
              testing::Not(testing::StartsWith("chosen: recursive_doubling\n")));
}

TEST(PlanTest, ShowsStrategiesInFull) {
  const CommandRun run = RunTutti("plan bytegrad:block=512 --ranks 2 --bytes 64K");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("strategy: bytegrad:"));
  EXPECT_THAT(run.out, HasSubstr("block=512"));
  EXPECT_THAT(run.out, HasSubstr("encode"));
}

TEST(PlanTest, RunsStrategiesBetweenNodes) {
  const CommandRun run = RunTutti("plan bytegrad --ranks 4 --ranks-per-node 2 --bytes 64K --rank 1 --verify");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, testing::Not(HasSubstr("encode")));  // only rank 0 encodes
  EXPECT_THAT(run.out, HasSubstr("verified: all 4 ranks"));
}

TEST(PlanTest, ShowsTheRoundOfAStep) {
  EXPECT_THAT(RunTutti("plan qadam --step 99 --bytes 64K").out, testing::Not(HasSubstr("encode")));
  EXPECT_THAT(RunTutti("plan qadam --step 100 --bytes 64K").out, HasSubstr("encode"));
}

TEST(PlanTest, CostsEveryScheduleOfACollective) {
  const CommandRun run = RunTutti("plan all_reduce --ranks 4 --bytes 1M --messages --cost --ranks-per-node 2");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("inside a node of 2 ranks, "));
  EXPECT_THAT(run.out, testing::ContainsRegex("all_reduce:ring +[0-9]+ +[0-9]+ +1572864 "));  // 2·3/4 of 1 MiB
  EXPECT_THAT(run.out, testing::ContainsRegex("all_reduce:direct +.*mapped"));
}

// The address space that a sanitizer takes for itself has no limit.
#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)
TEST(PlanTest, MemoryGrowsWithTheStepsOfALargeWorld) {
  const std::string plan = "plan broadcast:binomial --ranks 20000 --bytes 4K --messages --cost -q";
  const CommandRun run = RunTutti(plan, "ulimit -v 1000000; ");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, testing::ContainsRegex("broadcast:binomial +15 +15 +61440 "));
}

TEST(PlanTest, SaysThatThereIsNotEnoughMemory) {
  const std::string plan = "plan all_to_all:pairwise --ranks 3000 --bytes 4K --messages --cost -q";
  const CommandRun run = RunTutti(plan, "ulimit -v 200000; ");
  EXPECT_EQ(run.exit_code, 1) << run.out;
  EXPECT_THAT(run.err, HasSubstr("tutti: there is not enough memory; ask for fewer ranks"));
}
#endif

TEST(PlanTest, DrawsStepsAsGraphviz) {
  const ScratchFile file(".dot");
  const CommandRun run = RunTutti("plan broadcast --ranks 3 --bytes 64 --draw-steps " + file.path());
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(file.Read(), HasSubstr("digraph"));
}

// Sets PATH while an OnlyPath lives.
class OnlyPath {
 public:
  explicit OnlyPath(const std::string& path) : before_(getenv("PATH")) { setenv("PATH", path.c_str(), 1); }
  ~OnlyPath() { setenv("PATH", before_.c_str(), 1); }
  OnlyPath(const OnlyPath&) = delete;
  OnlyPath& operator=(const OnlyPath&) = delete;

 private:
  const std::string before_;
};

// Writes a program `dot`, made of shell commands, to `folder` and returns its path.
std::string InsteadOfDot(const std::string& folder, const std::string& commands) {
  const std::string dot = folder + "/dot";
  std::ofstream(dot) << "#!/bin/sh\n" << commands;
  std::filesystem::permissions(dot, std::filesystem::perms::owner_all);
  return dot;
}

TEST(PlanTest, HasGraphsDrawnByDot) {
  const TemporaryDirectory programs;
  const OnlyPath path(programs.path());
  for (const char* name : {"svg", "png", "pdf"}) {
    const std::string format = name;
    const ScratchFile file("." + format);
    const std::string draw = "plan broadcast --ranks 3 --bytes 64 --draw-steps " + file.path();
    const CommandRun without = RunTutti(draw);
    EXPECT_EQ(without.exit_code, 2) << format;
    EXPECT_THAT(without.err, HasSubstr("cannot run dot (Debian package graphviz)"));

    // This `dot` writes its arguments and the first line of its input to the picture.
    const std::string dot = InsteadOfDot(programs.path(), "read -r first\necho $1 $2 $first > $3\n");
    const CommandRun run = RunTutti(draw);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(file.Read(), testing::StartsWith("-T" + format + " -o digraph"));
    EXPECT_FALSE(std::filesystem::exists(file.path() + ".dot"));
    std::filesystem::remove(dot);
  }
}

TEST(PlanTest, KeepsTheInternalsOfDotToItself) {
  const TemporaryDirectory programs;
  const OnlyPath path(programs.path());
  InsteadOfDot(programs.path(), "echo 'first of many lines' >&2\necho 'second line' >&2\nexit 3\n");
  const ScratchFile file(".svg");
  const CommandRun run = RunTutti("plan broadcast --ranks 3 --bytes 64 --draw-steps " + file.path());
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.err, "tutti: dot failed to draw " + file.path() + ": first of many lines\n");
}

TEST(PlanTest, RefusesGraphsThatNobodyCouldReadBeforeItPrintsAnything) {
  for (const char* plan : {"all_reduce:direct --ranks 28", "all_reduce:ring --ranks 8 --bytes 64M"}) {
    const ScratchFile file(".svg");
    const CommandRun run = RunTutti(std::string("plan ") + plan + " --draw-steps " + file.path());
    EXPECT_EQ(run.exit_code, 2) << plan;
    EXPECT_THAT(run.err, HasSubstr("a graph has at most 1500 and 2000; take fewer --ranks")) << plan;
    EXPECT_EQ(run.out, "") << plan;
  }
  const ScratchFile graph(".dot");
  EXPECT_EQ(RunTutti("plan all_reduce:direct --ranks 28 --draw-steps " + graph.path()).exit_code, 0);
}

TEST(PlanTest, EndsADotThatTakesTooLong) {
  const TemporaryDirectory programs;
  const OnlyPath path(programs.path());
  InsteadOfDot(programs.path(), "exec /bin/sleep 1000\n");
  const absl::Status drawn = DrawSteps({}, "never.svg", absl::Milliseconds(50));
  EXPECT_EQ(drawn.code(), absl::StatusCode::kDeadlineExceeded) << drawn;
  EXPECT_THAT(std::string(drawn.message()), HasSubstr("dot did not draw never.svg within 50ms; take fewer --ranks"));
}

TEST(PlanTest, DrawsATimelineBesideTheSteps) {
  const ScratchFile file(".svg");
  const CommandRun run = RunTutti("plan all_reduce --ranks 3 --draw " + file.path());
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("\ndrawn: " + file.path() + "\n"));
  EXPECT_THAT(file.Read(), HasSubstr(", predicted to be the fastest of the "));
}

TEST(PlanTest, RefusesFilesItCannotWriteBeforeItPrintsAnything) {
  for (const char* flag : {"--draw /nowhere/plan.svg", "--draw-steps /nowhere/plan.dot", "--json /nowhere/plan.json"}) {
    const CommandRun run = RunTutti(std::string("plan bytegrad ") + flag);
    EXPECT_NE(run.exit_code, 0) << flag;
    EXPECT_THAT(run.err, testing::ContainsRegex("cannot write /nowhere/plan.*No such file")) << flag;
    EXPECT_EQ(run.out, "") << flag;
  }
}

TEST(PlanTest, RefusesOneFileForTwoPictures) {
  for (const std::string again : {"a.svg", "./a.svg"}) {
    const CommandRun run = RunTutti("plan bytegrad --draw a.svg --draw-steps " + again);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, HasSubstr("--draw-steps " + again + " is the file of --draw, too; name another one"));
  }
}

TEST(PlanTest, FailsWhenADiskIsFull) {
  // Links, because the names of pictures have ends.
  const TemporaryDirectory folder;
  for (const char* name : {"/plan.svg", "/plan.dot", "/plan.json"}) {
    std::filesystem::create_symlink("/dev/full", folder.path() + name);
  }
  for (const std::string& flag :
       {"--draw " + folder.path() + "/plan.svg", "--draw-steps " + folder.path() + "/plan.dot",
        "--json " + folder.path() + "/plan.json", std::string("> /dev/full"),
        std::string("--json - 2> /dev/null > /dev/full")}) {
    EXPECT_EQ(RunTutti("plan bytegrad " + flag).exit_code, 1) << flag;
  }
}

TEST(PlanTest, TakesANativeBandwidthThatIsNotKnown) {
  const std::string plan = "plan all_reduce:ring --native --cost";
  const CommandRun run = RunTutti(plan + " --native-bandwidth 0 --node-native-bandwidth 0");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, RunTutti(plan).out);
}

TEST(PlanTest, PredictsNoTimelineOfNativeStepsThatItKnowsNothingOf) {
  const ScratchFile file(".svg");
  const CommandRun run = RunTutti("plan all_reduce:native --native --draw " + file.path());
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("--draw " + file.path() + ": the cost model says nothing of native collectives"));
  EXPECT_THAT(run.err, HasSubstr("--native-bandwidth"));
  EXPECT_FALSE(std::filesystem::exists(file.path()));
}

// An all_gather in which every rank forgets its own block.
constinit const Schedule kWithoutOwnBlock = {.collective = Collective::kAllGather,
                                             .name = "wrong",
                                             .summary = "misses a copy",
                                             .cost = "",
                                             .supports = SupportsAll,
                                             .build = [](PlanBuilder& b) {
                                               for (Rank peer = 0; peer < b.size(); ++peer) {
                                                 if (peer == b.rank()) continue;
                                                 b.Send(peer, b.in());
                                                 b.Recv(peer, b.out().Elements(peer * b.spec().count, b.spec().count));
                                               }
                                             }};
constinit const Schedule* const kSchedules[] = {&kWithoutOwnBlock};

// Ends this process with the code with which `tutti plan all_gather:wrong` would.
[[noreturn]] void ShowWrongPlan(const std::string& flags) {
  const absl::Status registered =
      RegisterExtension({.name = "tests", .tutti_version = Version(), .schedules = kSchedules});
  CLI::App app;
  Invocation invocation;
  AddPlan(app, invocation);
  app.parse("plan all_gather:wrong --ranks 3 --bytes 64 --out-of-place --quiet " + flags);
  const absl::StatusOr<int> code = registered.ok() ? invocation.action() : registered;
  std::fprintf(stderr, "%s\n", code.status().ToString().c_str());
  std::exit(code.ok() ? *code : absl::IsFailedPrecondition(code.status()) ? 1 : 2);
}

TEST(PlanDeathTest, AWrongPlanIsAFailureHoweverItIsFoundAndItsStepsAreDrawn) {
  EXPECT_EXIT(ShowWrongPlan("--verify"), testing::ExitedWithCode(1), "FAILED_PRECONDITION: .*element");
  const ScratchFile picture(".svg");
  EXPECT_EXIT(ShowWrongPlan("--draw " + picture.path()), testing::ExitedWithCode(1), "a plan is wrong, and a timeline");
  for (const std::string verify : {"", "--verify "}) {
    const ScratchFile steps(".dot");
    EXPECT_EXIT(ShowWrongPlan(verify + "--draw-steps " + steps.path()), testing::ExitedWithCode(1), "element");
    EXPECT_THAT(steps.Read(), HasSubstr("digraph")) << verify;
  }
  const ScratchFile steps(".dot");
  EXPECT_EXIT(ShowWrongPlan("--draw " + picture.path() + " --draw-steps " + steps.path()), testing::ExitedWithCode(1),
              "a plan is wrong, and a timeline");
  EXPECT_THAT(steps.Read(), HasSubstr("digraph"));
}

TEST(PlanTest, IsQuietWhenAsked) {
  EXPECT_EQ(RunTutti("plan all_reduce:ring --ranks 3 -q").out, "");
  const CommandRun run = RunTutti("plan all_reduce:ring --ranks 3 --cost --verify --quiet");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, testing::StartsWith("cost of the busiest rank"));
  EXPECT_THAT(run.out, HasSubstr("\nverified: all 3 ranks"));
  EXPECT_EQ(RunTutti("plan broadcast:binomial --ranks 256 --bytes 4 --messages --verify -q").err, "");
}

TEST(PlanTest, SaysHowFarALargeVerificationHasCome) {
  const CommandRun run = RunTutti("plan broadcast:binomial --ranks 256 --bytes 4 --messages --verify");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* property : {"form", "matching and progress", "races", "values"}) {
    EXPECT_THAT(run.err, HasSubstr(std::string("tutti: verifying the plans of 256 ranks: ") + property + ", 0 %\n"));
  }
  EXPECT_EQ(RunTutti("plan broadcast:binomial --ranks 255 --bytes 4 --messages --verify").err, "");
}

TEST(PlanTest, WritesJson) {
  const ScratchFile file(".json");
  const CommandRun run =
      RunTutti("plan all_reduce:ring --ranks 3 --count 6 --out-of-place --messages --rank 1 --cost --verify --json " +
               file.path());
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json json = nlohmann::json::parse(file.Read());
  EXPECT_EQ(json["plan"], "all_reduce:ring");
  EXPECT_EQ(json["by"], "schedule ring, as asked for");
  EXPECT_EQ(json["rank"], 1);
  EXPECT_EQ(json["ranks"], 3);
  EXPECT_EQ(json["in_bytes"], 24);
  EXPECT_EQ(json["wire_bytes"], 2 * 2 * 8);
  ASSERT_EQ(json["steps"].size(), 10);
  EXPECT_EQ(json["steps"][0]["kind"], "send");
  EXPECT_EQ(json["steps"][0]["text"], "send in[0,8) f32 to 2 #0");
  EXPECT_EQ(json["steps"][2]["number"], 2);
  EXPECT_EQ(json["steps"][2]["after"], nlohmann::json::array({1}));
  ASSERT_EQ(json["costs"].size(), 1);
  EXPECT_EQ(json["costs"][0]["spec"], "all_reduce:ring");
  EXPECT_EQ(json["costs"][0]["messages"], 4);
  EXPECT_GT(json["costs"][0]["seconds"], 0);
  EXPECT_EQ(json["verified"], true);
}

TEST(PlanTest, WritesJsonToStandardOutput) {
  const CommandRun run = RunTutti("plan all_reduce --ranks 4 --messages --cost --json -");
  EXPECT_EQ(run.exit_code, 0);
  const nlohmann::json json = nlohmann::json::parse(run.out);
  EXPECT_FALSE(json.contains("verified"));
  EXPECT_THAT(json["by"].get<std::string>(), HasSubstr(", predicted to be the fastest of the "));
  EXPECT_THAT(json["costs"][0]["refused"].get<std::string>(), HasSubstr("mapped"));  // direct
  EXPECT_THAT(run.err, testing::StartsWith("chosen: "));
  EXPECT_EQ(RunTutti("plan all_reduce --json - --quiet").err, "");
}

TEST(PlanTest, RefusesOtherPicturesBeforeItPrintsAnything) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"--draw plan.png", "'plan.png' cannot be drawn; the name must end in .svg"},
      {"--draw plan", "'plan' cannot be drawn; the name must end in .svg"},
      {"--draw-steps plan.gif", "'plan.gif' cannot be drawn; the name must end in .dot, .svg, "},
      {"--draw-steps plan", "'plan' cannot be drawn; the name must end in .dot, .svg, "},
      {"--draw-steps plan.", "'plan.' cannot be drawn; the name must end in .dot, .svg, "},
      {"--draw-steps svg", "'svg' cannot be drawn; the name must end in .dot, .svg, "},
      {"--draw-graph plan.svg", "--draw-graph"},
  };
  for (const auto& [flag, answer] : mistakes) {
    const CommandRun run = RunTutti(std::string("plan bytegrad ") + flag);
    EXPECT_EQ(run.exit_code, 2) << flag;
    EXPECT_THAT(run.err, HasSubstr(answer)) << flag;
    EXPECT_EQ(run.out, "") << flag;
  }
}

TEST(PlanTest, ShowsAndVerifiesAPremultipliedSum) {
  const CommandRun run =
      RunTutti("plan reduce_scatter:ring --op premul_sum --dtype bf16 --ranks 3 --bytes 64 --verify");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("scale   scratch["));
  EXPECT_THAT(run.out, HasSubstr(" bf16 · factor"));
  EXPECT_THAT(run.out, HasSubstr("verified: all 3 ranks"));
}

TEST(PlanTest, SaysWhatWouldBeRight) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"plan", "spec is required"},
      {"plan all_reduc", "did you mean all_reduce?"},
      {"plan all_reduce:rings", "ring"},
      {"plan bytegrad:blok=1", "block"},
      {"plan bytegrad --op max --root 1", "--op, --root: bytegrad decides that itself; leave it out"},
      {"plan bytegrad --out-of-place", "--out-of-place: bytegrad decides that itself"},
      {"plan bytegrad --in-place", "--in-place: bytegrad decides that itself"},
      {"plan bytegrad:", "an option is empty"},
      {"plan decentralized:communication_interval=7 --step 15", "; the next step that does is --step 21\n"},
      {"plan decentralized:communication_interval=1000000 --step 1", ", nor does one of the 99999 steps after it\n"},
      {"plan all_reduce --op bor", "op bor is not defined for f32"},
      {"plan gradient_allreduce:codec=topk", "is no cast"},
      {"plan all_reduce --rank 2", "--rank 2 must be in 0…1"},
      {"plan all_reduce --bytes 1 --count 1", "excludes"},
      {"plan all_reduce:direct --messages", "mapped"},
      {"plan all_reduce --cost --latency 2", "--latency: expected a number from 0 to 1, found 2"},
      {"plan all_reduce --cost --latency nan", "--latency: expected a number from 0 to 1, found nan"},
      {"plan all_reduce --cost --bandwidth fast", "--bandwidth: expected a number from 1 to 1e+15, found fast"},
      {"plan all_reduce --cost --bandwidth 0", "--bandwidth: expected a number from 1 to 1e+15, found 0"},
      {"plan all_reduce --native-bandwidth 4e11 --cost", "--native-bandwidth requires --native"},
      {"plan all_reduce --node-native-latency 1e-5 --cost", "--node-native-latency requires --native"},
      {"plan all_reduce --native --native-bandwidth -1",
       "--native-bandwidth: expected a number from 0 to 1e+15, found -1"},
      {"plan send --ranks 1", "at least 2"},
      {"plan broadcast --root 5", "root 5"},
      {"plan all_reduce --root 1", "--root: all_reduce has no root; leave --root out"},
      {"plan send --root 1", "--root: send has no root; leave --root out"},
      {"plan recv --root 0", "--root: recv has no root; leave --root out"},
      {"plan all_to_all --in-place", "--in-place: all_to_all has no in-place form; leave --in-place out"},
      {"plan barrier --in-place", "--in-place: barrier has no in-place form; leave --in-place out"},
      {"plan all_reduce:ring --step 5",
       "--step: all_reduce has the same plan in every step; leave --step out, or name a strategy"},
      {"plan send --step 0", "--step: send has the same plan in every step"},
      {"plan all_gather:ring --op max", "--op: all_gather reduces nothing; leave --op out"},
      {"plan broadcast --json ''", "--json: '' is the name of no file; write one, or leave the flag out"},
  };
  for (const auto& [arguments, answer] : mistakes) {
    const CommandRun run = RunTutti(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments;
    EXPECT_THAT(run.err, HasSubstr(answer)) << arguments;
  }
}

// all_to_all is out of place in any case, so that the flag says what is true.
TEST(PlanTest, OutOfPlaceIsNoMistakeWhereThereIsNoOtherForm) {
  EXPECT_EQ(RunTutti("plan all_to_all --out-of-place").exit_code, 0);
}

}  // namespace
}  // namespace tutti::cli
