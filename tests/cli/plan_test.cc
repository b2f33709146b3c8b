// tutti plan, as a user runs it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "bindings/cli/plan_picture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/command_run.h"
#include "tests/harness/calls.h"
#include "tests/store/temporary_directory.h"
#include "tutti/algorithm.h"
#include "tutti/schedule.h"

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

TEST(PlanTest, DrawsGraphviz) {
  const ScratchFile file(".dot");
  const CommandRun run = RunTutti("plan broadcast --ranks 3 --bytes 64 --draw " + file.path());
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

TEST(PlanTest, HasPicturesDrawnByDot) {
  const TemporaryDirectory programs;
  const OnlyPath path(programs.path());
  for (const char* name : {"svg", "png", "pdf"}) {
    const std::string format = name;
    const ScratchFile file("." + format);
    const std::string draw = "plan broadcast --ranks 3 --bytes 64 --draw " + file.path();
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
  const CommandRun run = RunTutti("plan broadcast --ranks 3 --bytes 64 --draw " + file.path());
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.err, "tutti: dot failed to draw " + file.path() + ": first of many lines\n");
}

TEST(PlanTest, RefusesPicturesThatNobodyCouldReadBeforeItPrintsAnything) {
  for (const char* plan : {"all_reduce:direct --ranks 28", "all_reduce:ring --ranks 8 --bytes 64M"}) {
    const ScratchFile file(".svg");
    const CommandRun run = RunTutti(std::string("plan ") + plan + " --draw " + file.path());
    EXPECT_EQ(run.exit_code, 2) << plan;
    EXPECT_THAT(run.err, HasSubstr("a picture has at most 1500 and 2000; take fewer --ranks")) << plan;
    EXPECT_EQ(run.out, "") << plan;
  }
  const ScratchFile graph(".dot");
  EXPECT_EQ(RunTutti("plan all_reduce:direct --ranks 28 --draw " + graph.path()).exit_code, 0);
}

TEST(PlanTest, EndsADotThatTakesTooLong) {
  const TemporaryDirectory programs;
  const OnlyPath path(programs.path());
  InsteadOfDot(programs.path(), "exec /bin/sleep 1000\n");
  const absl::Status drawn = DrawPlans({}, "never.svg", absl::Milliseconds(50));
  EXPECT_EQ(drawn.code(), absl::StatusCode::kDeadlineExceeded) << drawn;
  EXPECT_THAT(std::string(drawn.message()), HasSubstr("dot did not draw never.svg within 50ms; take fewer --ranks"));
}

TEST(PlanTest, RefusesOtherPicturesBeforeItPrintsAnything) {
  for (const char* file : {"plan.gif", "plan", "plan.", "svg"}) {
    const CommandRun run = RunTutti(std::string("plan bytegrad --draw ") + file);
    EXPECT_EQ(run.exit_code, 2) << file;
    EXPECT_THAT(run.err, HasSubstr(std::string("'") + file + "' cannot be drawn; the name must end in .dot, .svg, "));
    EXPECT_EQ(run.out, "") << file;
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
      {"plan bytegrad --out-of-place", "--in-place: bytegrad decides that itself"},
      {"plan bytegrad:", "an option is empty"},
      {"plan all_reduce --op bor", "op bor is not defined for f32"},
      {"plan gradient_allreduce:codec=topk", "is no cast"},
      {"plan all_reduce --rank 2", "--rank 2 must be in 0…1"},
      {"plan all_reduce --bytes 1 --count 1", "excludes"},
      {"plan all_reduce:direct --messages", "mapped"},
      {"plan all_reduce --cost --latency 2", "--latency: expected a number from 0 to 1, found 2"},
      {"plan all_reduce --cost --latency nan", "--latency: expected a number from 0 to 1, found nan"},
      {"plan all_reduce --cost --bandwidth fast", "--bandwidth: expected a number from 1 to 1e+15, found fast"},
      {"plan send --ranks 1", "at least 2"},
      {"plan broadcast --root 5", "root 5"},
      {"plan all_reduce --root 1", "--root: all_reduce has no root; leave --root out"},
      {"plan all_gather:ring --op max", "--op: all_gather reduces nothing; leave --op out"},
  };
  for (const auto& [arguments, answer] : mistakes) {
    const CommandRun run = RunTutti(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments;
    EXPECT_THAT(run.err, HasSubstr(answer)) << arguments;
  }
}

}  // namespace
}  // namespace tutti::cli
