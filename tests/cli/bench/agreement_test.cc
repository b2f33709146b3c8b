#include "bindings/cli/bench/agreement.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/command_run.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::map<std::string, std::string> FieldsOfLine(const std::string& line) {
  CLI::App app;
  BenchFlags flags;
  AddBenchFlags(app, flags);
  app.parse(line);
  const std::vector<std::pair<std::string, std::string>> fields = FieldsOf(flags);
  return {fields.begin(), fields.end()};
}

// The flags that all ranks must have alike, each with a value that is not its default.
const std::map<std::string, std::string>& OtherValues() {
  static const std::map<std::string, std::string> values = {
      {"--transport", "ucx"},   {"--device", "cuda"},   {"--peer", "nccl"},    {"--messages", ""},
      {"--buffers", "private"}, {"--min-bytes", "8"},   {"--max-bytes", "1K"}, {"--factor", "2"},
      {"--dtype", "bf16"},      {"--op", "max"},        {"--root", "1"},       {"--schedule", "ring"},
      {"--codec", "bf16"},      {"--out-of-place", ""}, {"--iters", "3"},      {"--warmup", "3"},
      {"--min-time", "1"},      {"--repeats", "2"},     {"--rewrite", ""},     {"--no-check", ""},
      {"--pause", "0.1"},       {"--latency", ""},      {"--bind", ""}};
  return values;
}

TEST(BenchAgreementTest, EveryFlagThatChangesWhatIsMeasuredIsCompared) {
  const std::map<std::string, std::string> before = FieldsOfLine("all_reduce");
  EXPECT_NE(before, FieldsOfLine("broadcast"));
  for (const auto& [flag, value] : OtherValues()) {
    std::map<std::string, std::string> after = FieldsOfLine(absl::StrCat("all_reduce ", flag, " ", value));
    EXPECT_NE(after.at(flag), before.at(flag)) << flag;
  }
  // In place is the default, so that the flag changes something beside --out-of-place only.
  EXPECT_EQ(before, FieldsOfLine("all_reduce --in-place"));
  EXPECT_NE(FieldsOfLine("all_reduce --out-of-place"), FieldsOfLine("all_reduce --out-of-place --in-place"));
}

// A flag that is new has to be compared, or to be named here.
TEST(BenchAgreementTest, NoFlagIsForgotten) {
  // The launcher knows how many ranks there are; --rewrite and --no-rewrite are one field.
  std::set<std::string> known = {"--help", "--in-place", "--no-rewrite", "--ranks"};
  for (const char* of_rank_0 : {"--json", "--jsonl", "--csv", "--plot", "--compare"}) {
    known.insert(of_rank_0);
  }
  for (const auto& [flag, value] : OtherValues()) known.insert(flag);
  CLI::App app;
  BenchFlags flags;
  AddBenchFlags(app, flags);
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) EXPECT_TRUE(known.count("--" + name) == 1) << name;
  }
}

// `tutti bench all_reduce` on two ranks, of which rank 1 gets `of_rank_1`, too.
CommandRun RunWith(const std::string& of_both, const std::string& of_rank_1) {
  return RunTutti("launch -n 2 -- sh -c 'if [ $TUTTI_RANK = 1 ]; then MORE=\"" + of_rank_1 + "\"; fi; exec " + kTutti +
                  " bench all_reduce -b 4 --iters 2 --warmup 1 " + of_both + " $MORE'");
}

TEST(BenchAgreementTest, RanksWithOtherArgumentsAreToldBeforeAnythingIsMeasured) {
  struct Mistake {
    const char* of_both;
    const char* of_rank_1;
    const char* answer;
  };
  const Mistake mistakes[] = {
      {"", "-e 4K", "rank 1 has --max-bytes=4K, rank 0 has 256M"},
      {"-e 64", "-d bf16", "rank 1 has --dtype=bf16, rank 0 has f32"},
      {"-e 64", "--codec uint8_block", "rank 1 has --codec=uint8_block, rank 0 has none"},
      {"-e 64", "--messages", "rank 1 has --messages=yes, rank 0 has no"},
      {"-e 64", "--schedule ring", "rank 1 has --schedule=ring, rank 0 has nothing"},
      {"-e 64", "--repeats 2 --rewrite",
       "rank 1 has --repeats=2, rank 0 has 1; rank 1 has --rewrite=yes, rank 0 has no"},
  };
  for (const auto& [of_both, of_rank_1, answer] : mistakes) {
    const CommandRun run = RunWith(of_both, of_rank_1);
    EXPECT_EQ(run.exit_code, 2) << of_rank_1 << "\n" << run.err;
    EXPECT_EQ(run.out, "") << of_rank_1;
    EXPECT_THAT(run.err, HasSubstr("tutti bench was started with different arguments: ")) << of_rank_1;
    EXPECT_THAT(run.err, HasSubstr(answer)) << of_rank_1;
    EXPECT_THAT(run.err, HasSubstr("give all ranks the same arguments (only files may differ)")) << of_rank_1;
  }
}

TEST(BenchAgreementTest, ARankThatWaitsInVainSaysWhereToLook) {
  const CommandRun run =
      RunTutti("launch -n 2 -- sh -c 'export TUTTI_TIMEOUT=1; if [ $TUTTI_RANK = 1 ]; then sleep 4; exit; fi; exec " +
               std::string(kTutti) + " bench all_reduce -b 4 -e 4'");
  EXPECT_THAT(run.err,
              HasSubstr("missing ranks: 1; a missing rank may have refused its own arguments or files: see the "
                        "output of that rank"));
  EXPECT_EQ(WithHintOnRefusal(absl::UnavailableError("gone")), absl::UnavailableError("gone"));
}

TEST(BenchAgreementTest, RanksMayNameOtherFilesAndWriteSizesInOtherWays) {
  const ScratchFile mine(".json"), other("-1.json");
  const CommandRun run = RunTutti("launch -n 2 -- sh -c 'case $TUTTI_RANK in 0) HOW=\"-e 1K --json " + mine.path() +
                                  "\";; *) HOW=\"-e 1024 " + "--in-place --json " + other.path() + "\";; esac; exec " +
                                  kTutti + " bench all_reduce -b 4 --iters 2 $HOW'");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(mine.Read(), HasSubstr("\"rows\""));
  EXPECT_THAT(other.Read(), Not(HasSubstr("\"rows\"")));
}

}  // namespace
}  // namespace tutti::cli
