// tutti advise, as a user runs it.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cli/command_run.h"
#include "tutti/algorithm.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const char* const kTraining = "advise --ranks 4 --parameters 1M --step-ms 50 ";

nlohmann::json Advise(const std::string& flags, const std::string& training = kTraining) {
  const CommandRun run = RunTutti(training + flags + " --json");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return nlohmann::json::parse(run.out);
}

nlohmann::json RowOf(const nlohmann::json& advice, const std::string& strategy) {
  for (const nlohmann::json& row : advice["strategies"]) {
    if (row["strategy"] == strategy) return row;
  }
  ADD_FAILURE() << strategy << " is not in " << advice;
  return {};
}

double StepOf(const std::string& flags, const std::string& strategy) {
  return RowOf(Advise(flags), strategy)["step_s"];
}

TEST(AdviseTest, TheTableBeginsWithTheAdvice) {
  const CommandRun run = RunTutti("advise --link 1G --ranks 8 --parameters 20M --step-ms 50");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out,
              StartsWith("8 ranks, 1 on each node, over links of 1 Gbit/s; 20000000 parameters of fp32; a step "
                         "takes 50.0 ms when nothing is exchanged\n\nstrategy "));
  EXPECT_THAT(run.out, HasSubstr("(times)\nbytegrad:codec=uint4_block  "));
  EXPECT_THAT(run.out, HasSubstr("\nAdvice: bytegrad:codec=uint4_block. A step takes "));
  EXPECT_THAT(run.out, HasSubstr("Communication still makes a step "));
  EXPECT_THAT(run.out, HasSubstr("\nRead docs/algorithms/bytegrad.md before"));
  EXPECT_EQ(run.out.find(" \n"), std::string::npos) << "a line ends with a space";
}

TEST(AdviseTest, LayersAreShown) {
  const CommandRun run = RunTutti(std::string(kTraining) + "--link 1G --layer-parameters 250K");
  EXPECT_THAT(run.out, HasSubstr("; 1000000 parameters of fp32 in layers of up to 250000; a step takes 50.0 ms"));
  EXPECT_EQ(Advise("--link 1G --layer-parameters 250K")["training"]["layer_parameters"], 250'000);
}

TEST(AdviseTest, BackwardsThatAreAccumulatedAreShown) {
  const CommandRun run = RunTutti(std::string(kTraining) + "--link 1G --accumulate 4");
  EXPECT_THAT(run.out, HasSubstr("; a step of 4 backwards takes 50.0 ms when nothing is exchanged\n"));
  EXPECT_EQ(Advise("--link 1G --accumulate 4")["training"]["backwards"], 4);
}

TEST(AdviseTest, HelpSaysWhenTheLinkIsNeeded) {
  const std::string help = RunTutti("advise --help").out;
  EXPECT_THAT(help, HasSubstr("Needed where the ranks are on several nodes"));
}

TEST(AdviseTest, EveryAlgorithmIsCompared) {
  const std::string names = Advise("--link 1G")["strategies"].dump();
  for (const Algorithm* algorithm : AllAlgorithms()) EXPECT_THAT(names, HasSubstr(std::string(algorithm->name)));
}

TEST(AdviseTest, CompressionDoesNotPayOnAFastLink) {
  const nlohmann::json advice = Advise("--ranks-per-node 4");
  EXPECT_EQ(advice["advice"], "gradient_allreduce");
  EXPECT_EQ(advice["strategies"][0]["strategy"], "gradient_allreduce");
  EXPECT_THAT(std::string(advice["in_words"]),
              testing::AllOf(HasSubstr("Compression does not pay here. Gradients travel for "),
                             testing::EndsWith("no strategy that competes makes a step shorter.")));
}

TEST(AdviseTest, CompressionPaysOnASlowLink) {
  const nlohmann::json advice = Advise("--link 10M");
  EXPECT_EQ(advice["advice"], "bytegrad:codec=uint4_block");
  EXPECT_GT(advice["strategies"][0]["speed"], 5);
  EXPECT_THAT(std::string(advice["in_words"]), testing::Not(HasSubstr("does not pay")));
}

// The strategy that is advised exchanges weights without a codec, and codecs pay all the same.
TEST(AdviseTest, CompressionPaysAlsoWhereAnExactExchangeIsAdvised) {
  const nlohmann::json advice = Advise("--link 500M --cores-per-rank 0.5 --bucket-bytes 1M --first-bucket-bytes 64K",
                                       "advise --ranks 4 --parameters 206922 --step-ms 56.7 ");
  EXPECT_THAT(std::string(advice["advice"]), StartsWith("decentralized"));
  EXPECT_GT(RowOf(advice, "bytegrad")["speed"], 1.1);
  EXPECT_THAT(std::string(advice["in_words"]), testing::Not(HasSubstr("does not pay")));
}

TEST(AdviseTest, AGainOfLessThanTwoPercentIsNoReason) {
  // The exact average is hidden but for a bucket of the 100; 16 bits would halve what is not hidden.
  const nlohmann::json advice =
      Advise("--link 10G --bucket-bytes 1M", "advise --ranks 4 --parameters 25M --step-ms 2000 ");
  EXPECT_EQ(advice["advice"], "gradient_allreduce");
  double least = 1e9;
  for (const nlohmann::json& row : advice["strategies"]) {
    if (row["competes"]) least = std::min<double>(least, row["step_s"]);
  }
  EXPECT_LT(least, advice["strategies"][0]["step_s"]);
}

// Among all ranks a codec sends every chunk of a node over the link that its ranks share.
TEST(AdviseTest, CodecsBetweenNodesAreComparedWhereRanksShareALink) {
  for (const char* ranks : {"16 --ranks-per-node 8 ", "12 --ranks-per-node 8 "}) {
    const std::string training = absl::StrCat("advise --parameters 20M --step-ms 200 --ranks ", ranks);
    const nlohmann::json advice = Advise("--link 1G", training);
    EXPECT_LT(RowOf(advice, "gradient_allreduce:codec=bf16")["speed"], 1) << ranks;
    EXPECT_GT(RowOf(advice, "gradient_allreduce:codec=bf16,hierarchical=true")["speed"], 1.3) << ranks;
    EXPECT_GE(RowOf(advice, "gradient_allreduce:hierarchical=true")["speed"], 0.95) << ranks;
  }
  for (const char* alone : {"--link 1G", "--ranks-per-node 4"}) {
    EXPECT_THAT(Advise(alone)["strategies"].dump(), testing::Not(HasSubstr("hierarchical"))) << alone;
  }
}

TEST(AdviseTest, LossOfAccuracyMustBeAccepted) {
  const nlohmann::json without = Advise("--link 10M");
  for (const char* strategy :
       {"async", "bytegrad:codec=topk,error_feedback=true", "bytegrad:codec=sign,error_feedback=true"}) {
    EXPECT_EQ(RowOf(without, strategy)["competes"], false);
    EXPECT_EQ(RowOf(without, strategy)["competes_with"], "--accept-loss");
  }
  EXPECT_EQ(Advise("--link 10M --accept-loss")["advice"], "async");
  EXPECT_THAT(RunTutti(kTraining + std::string("--link 10M")).out, HasSubstr(" (competes with --accept-loss)\n"));
}

TEST(AdviseTest, QadamNeedsAdam) {
  EXPECT_EQ(RowOf(Advise("--link 10M"), "qadam")["competes"], false);
  EXPECT_EQ(RowOf(Advise("--link 10M --adam"), "qadam")["competes"], true);
}

TEST(AdviseTest, EveryFlagCounts) {
  const std::string exact = "gradient_allreduce";
  EXPECT_EQ(StepOf("--link 1G", exact), StepOf("--link 125MB", exact));
  EXPECT_GT(StepOf("--link 1G", exact), StepOf("--link 10G", exact));
  EXPECT_GT(StepOf("--link 1G --delay 20ms", exact), StepOf("--link 1G", exact) + 0.02);
  EXPECT_GT(StepOf("--link 1G --ranks-per-node 2", exact), StepOf("--ranks-per-node 4", exact));
  EXPECT_GT(StepOf("--link 10G --memory-bandwidth 1GB", "bytegrad"), StepOf("--link 10G", "bytegrad"));
  EXPECT_GT(StepOf("--link 10G --cores-per-rank 0.5", "bytegrad"), StepOf("--link 10G", "bytegrad"));
  EXPECT_GT(StepOf("--link 10G --first-bucket-bytes 4M", exact), StepOf("--link 10G --first-bucket-bytes 2M", exact));
  EXPECT_GT(StepOf("--link 1G --layer-parameters 900K", exact), StepOf("--link 1G", exact));
  EXPECT_GT(StepOf("--link 1G --accumulate 4", exact), StepOf("--link 1G", exact));
  EXPECT_EQ(StepOf("--link 1G --accumulate 4", "decentralized"), StepOf("--link 1G", "decentralized"));
  EXPECT_GT(StepOf("--link 10G --bucket-bytes 4M", exact), StepOf("--link 10G --bucket-bytes 1M", exact));
}

TEST(AdviseTest, WhatCannotServeHasItsReason) {
  const CommandRun run = RunTutti("advise --link 1G --ranks 3 --ranks-per-node 2 --parameters 1M --step-ms 50");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, testing::ContainsRegex("\nlow_precision_decentralized: .*node"));
}

TEST(AdviseTest, BucketsAreNotTooManyToPredict) {
  const std::string advise = "advise --ranks 2 --link 1G --step-ms 50 --parameters ";
  const CommandRun small = RunTutti(advise + "20M --first-bucket-bytes 4 --bucket-bytes 25");
  EXPECT_EQ(small.exit_code, 2);
  EXPECT_THAT(small.err,
              HasSubstr("--bucket-bytes 25 cuts the 20000000 of --parameters into 3333335 buckets, more than the "
                        "1000000 that can be predicted: write --bucket-bytes 84 or more"));
  const CommandRun many = RunTutti(advise + "1000000B");
  EXPECT_EQ(many.exit_code, 2);
  EXPECT_THAT(many.err, HasSubstr("--bucket-bytes 25M cuts the 1000000000000000 of --parameters into "));
}

TEST(AdviseTest, MistakesNameTheFlag) {
  const auto expect = [](const std::string& flags, const std::string& text) {
    const CommandRun run = RunTutti("advise " + flags);
    EXPECT_EQ(run.exit_code, 2) << flags << run.out;
    EXPECT_THAT(run.err, HasSubstr(text)) << flags;
  };
  const std::string rest = " --parameters 1M --step-ms 50";
  expect("--ranks 4" + rest, "--link is missing: how fast is the link of a node, for example 1G?");
  expect("--ranks 8 --ranks-per-node 8 --link 100M" + rest,
         "--link: all 8 ranks are on one node, and nothing passes a link; leave it out, or lower --ranks-per-node");
  expect("--ranks 2 --ranks-per-node 8 --link 100M --delay 1ms" + rest, "--link, --delay: all 2 ranks are on one node");
  expect("--link 1G" + rest, "--ranks");
  expect("--ranks 1 --link 1G" + rest, "--ranks");
  expect("--ranks 4 --link 1X" + rest, "'1X' is no rate");
  expect("--ranks 4 --link 100" + rest, "'100' has no unit: 100M would be megabits per second");
  expect("--ranks 4 --link 1G --delay 5" + rest, "'5' is no time");
  expect("--ranks 4 --link 1G --parameters 1Q --step-ms 5", "'1Q' is no count");
  expect("--ranks 4 --link 1G --parameters 1M --step-ms 0", "--step-ms");
  expect("--ranks 4 --link 1G --parameters 1M", "--step-ms");
  for (const char* flag : {"--bucket-bytes", "--first-bucket-bytes"}) {
    expect(std::string("--ranks 4 --link 1G ") + flag + " 0" + rest,
           std::string(flag) + ": '0' has room for no parameter; write at least 4 bytes, as 1M or 25M");
  }
  expect("--ranks 4 --link 1G --layer-parameters 2M" + rest,
         "--layer-parameters is 2000000, more than the 1000000 of --parameters, to which the layer belongs");
}

}  // namespace
}  // namespace tutti::cli
