// Strategy names: what users write, and what they are told when it is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "tutti/algorithm.h"
#include "tutti/extension.h"
#include "tutti/version.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

TEST(ParseStrategy, FillsInDefaults) {
  absl::StatusOr<Strategy> strategy = ParseStrategy("gradient_allreduce");
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  EXPECT_EQ(strategy->ToString(), "gradient_allreduce:average=true,hierarchical=false,schedule=auto,codec=none");
  EXPECT_TRUE(strategy->flag("average"));
  EXPECT_FALSE(strategy->flag("hierarchical"));
}

TEST(ParseStrategy, TakesOptionsInAnyOrder) {
  absl::StatusOr<Strategy> strategy = ParseStrategy("bytegrad:block=256,average=false");
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  EXPECT_EQ(strategy->integer("block"), 256);
  EXPECT_FALSE(strategy->flag("average"));
  absl::StatusOr<Strategy> again = ParseStrategy(strategy->ToString());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ToString(), strategy->ToString());
}

TEST(ParseStrategy, TakesTheOptionsOfTheCodecItNames) {
  absl::StatusOr<Strategy> strategy = ParseStrategy("bytegrad:seed=9,codec=uint4_block,rotation=true");
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  EXPECT_EQ(strategy->ToString(),
            "bytegrad:average=true,hierarchical=true,error_feedback=false,codec=uint4_block,block=128,rounding=nearest,"
            "seed=9,rotation=true");
  const CodecChoice choice = CodecOf(*strategy);
  EXPECT_EQ(choice.codec, *FindCodec("uint4_block"));
  EXPECT_EQ(choice.options, (CodecOptions{.block = 128, .seed = 9, .rotation = true}));
  EXPECT_EQ(ToString(choice), "uint4_block:block=128,seed=9,rotation=true");
  EXPECT_EQ(CodecOf(*ParseStrategy("bytegrad:codec=topk,density=0.25")).options,
            (CodecOptions{.block = 65536, .density = 0.25}));
}

// The printed options of a codec, which are also its defaults, must name the codec that encodes.
TEST(ParseStrategy, LosesNothingOfADensity) {
  for (const double density : {1.0 / 3, 0.0123456789, 1 - 1e-9, 1e-5, 0.01}) {
    const CodecOptions options = {.block = 65536, .density = density};
    const std::string text = absl::StrCat("bytegrad:codec=topk,density=", OptionText(options, "density"));
    EXPECT_EQ(CodecOf(*ParseStrategy(text)).options, options) << text;
  }
  EXPECT_EQ(OptionText({.density = 0.01}, "density"), "0.01");
  EXPECT_FALSE((*FindCodec("uint8_block"))->validate({.block = 64, .density = 1 - 1e-9}).ok());
  EXPECT_THAT(std::string((*FindCodec("topk"))->validate({.density = 1 + 1e-9}).message()),
              HasSubstr("density is 1.000000001, must be"));
}

TEST(ParseStrategy, GivesEachCodecItsOwnDefaults) {
  for (const Codec* codec : AllCodecs()) {
    const absl::StatusOr<Strategy> strategy = ParseStrategy(absl::StrCat("bytegrad:codec=", codec->name));
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    EXPECT_EQ(CodecOf(*strategy), (CodecChoice{codec, codec->defaults})) << codec->name;
  }
}

TEST(ParseStrategy, EveryDefaultIsValid) {
  for (const Algorithm* algorithm : AllAlgorithms()) {
    absl::StatusOr<Strategy> defaults = ParseStrategy(algorithm->name);
    ASSERT_TRUE(defaults.ok()) << defaults.status();
    EXPECT_TRUE(ParseStrategy(defaults->ToString()).ok()) << ParseStrategy(defaults->ToString()).status();
  }
}

TEST(ParseStrategy, KnowsWhichOptionsThereAre) {
  const Strategy strategy = *ParseStrategy("bytegrad");
  EXPECT_TRUE(strategy.has("average") && strategy.has("codec") && strategy.has("block"));
  EXPECT_FALSE(strategy.has("averag") || strategy.has("density"));
}

TEST(StrategyDeathTest, AnOptionThatThereIsNotEndsTheProcess) {
  const Strategy strategy = *ParseStrategy("async:sync_interval_ms=3");
  EXPECT_DEATH(strategy.integer("sync_intervall_ms"),
               "algorithm async asks for its option 'sync_intervall_ms', which it has not; it has hierarchical, "
               "peer_selection_mode, sync_interval_ms, max_staleness, warmup_steps\n");
  EXPECT_DEATH((void)strategy.flag("average"), "algorithm async asks for its option 'average', which it has not");
  EXPECT_DEATH(strategy.integer("hierarchical"),
               "algorithm async asks for its option hierarchical as a whole number, but it is 'true', which the check");
}

// Parses a strategy of an algorithm whose default its own check refuses, in a process that has the algorithm.
[[noreturn]] void ParseWithWrongDefault() {
  static constexpr AlgorithmOption kOptions[] = {{"interval", "0", "1, 2, …", "", CheckPositive}};
  static constexpr Algorithm kMine = {
      .name = "mine",
      .summary = "",
      .cost = "",
      .exchanges = Exchanges::kGradients,
      .phase = Phase::kBackward,
      .options = kOptions,
      .supports = [](const Strategy&, const CollectiveSpec&, int, const PlanOptions&) { return absl::OkStatus(); },
      .build = [](const Strategy&, int, PlanBuilder&) {}};
  static constexpr const Algorithm* kAlgorithms[] = {&kMine};
  absl::Status status = RegisterExtension({.name = "tests", .tutti_version = Version(), .algorithms = kAlgorithms});
  status.Update(ParseStrategy("mine:interval=3").status());
  const absl::Status wrong = ParseStrategy("mine").status();
  std::fprintf(stderr, "%s, %s\n", status.ToString().c_str(), wrong.ToString().c_str());
  std::exit(3);
}

TEST(StrategyDeathTest, ADefaultThatIsNotValidIsAnError) {
  EXPECT_EXIT(ParseWithWrongDefault(), testing::ExitedWithCode(3),
              "OK, INVALID_ARGUMENT: strategy 'mine': the record of the algorithm has a default that is not valid: "
              "option interval=0; valid: 1, 2, …");
}

struct Mistake {
  std::string strategy;
  std::string answer;
};

class StrategyMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(StrategyMistake, IsToldWhatWouldBeRight) {
  absl::StatusOr<Strategy> strategy = ParseStrategy(GetParam().strategy);
  EXPECT_EQ(strategy.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(strategy.status().message()), HasSubstr(GetParam().answer));
}

INSTANTIATE_TEST_SUITE_P(
    All, StrategyMistake,
    ::testing::Values(
        Mistake{"", "valid: async, bytegrad, decentralized, gradient_allreduce"},
        Mistake{"bytgrad", "strategy 'bytgrad': no algorithm is named 'bytgrad'; valid: async, bytegrad, "},
        Mistake{"bytegrad:blok=3",
                "unknown option 'blok' with codec=uint8_block; valid: average, hierarchical, error_feedback, codec, "
                "block, rounding, seed"},
        Mistake{"bytegrad:block=3", "option block=3; valid: a power of two, or 0 for the whole message"},
        Mistake{"bytegrad:block=-2", "option block=-2; valid: "}, Mistake{"bytegrad:block=", "option block=; valid: "},
        Mistake{"bytegrad:block=1024x", "option block=1024x; valid: "},
        Mistake{"bytegrad:average=yes", "option average=yes; valid: true, false"},
        Mistake{"bytegrad:average=true,average=true", "option average is given twice"},
        Mistake{"bytegrad:",
                "strategy 'bytegrad:': an option is empty; an option=value must follow every colon and comma"},
        Mistake{"bytegrad:block=64,", "an option is empty"}, Mistake{"bytegrad:,block=64", "an option is empty"},
        Mistake{"bytegrad: block=64", "unknown option ' block'"},
        Mistake{"bytegrad:codec=zip", "option codec=zip; valid: bf16, "},
        Mistake{"bytegrad:codec=none", "option codec=none; valid: bf16, "},
        Mistake{"bytegrad:codec=topk,rounding=stochastic",
                "unknown option 'rounding' with codec=topk; valid: average, hierarchical, error_feedback, codec, "
                "block, density"},
        Mistake{"bytegrad:codec=topk,density=0", "option density=0; valid: a number above 0, up to 1"},
        Mistake{"bytegrad:codec=topk,density=nan", "option density=nan; valid: "},
        Mistake{"bytegrad:rounding=up", "option rounding=up; valid: nearest, stochastic"},
        Mistake{"bytegrad:seed=-1", "option seed=-1; valid: a number from 0 on"},
        Mistake{"bytegrad:block=2", "uint8_block: block is 2, must be a power of two from 4"},
        Mistake{"bytegrad:codec=uint4_block,rotation=true,block=0",
                "uint4_block: rotation=true needs a block from 4 to 4096"},
        Mistake{"async:max_staleness=-1", "option max_staleness=-1; valid: 0, 1, …"},
        Mistake{"async:max_staleness=2.5", "option max_staleness=2.5; valid: 0, 1, …"},
        Mistake{"gradient_allreduce:schedule=rings", "option schedule=rings; valid: auto"},
        Mistake{"gradient_allreduce:hierarchical", "option hierarchical=; valid: true, false"}),
    [](const ::testing::TestParamInfo<Mistake>& test) { return std::to_string(test.index); });

}  // namespace
}  // namespace tutti
