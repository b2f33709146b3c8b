#include "bindings/cli/bench/sweep.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bindings/cli/traffic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BenchOptions Options() {
  BenchOptions options;
  options.max_bytes = 1024;
  return options;
}

// A case in words.
std::string Said(const BenchOptions& one) {
  return absl::StrCat(one.collective, " ", Name(one.traffic.dtype), " ", Name(one.traffic.op), " ",
                      one.codec.empty() ? "-" : one.codec, " ", one.schedule.empty() ? "-" : one.schedule);
}

std::vector<std::string> CasesIn(const BenchSweep& sweep, const BenchOptions& options = Options()) {
  const absl::StatusOr<BenchCases> cases = CasesOf(sweep, options, 3);
  EXPECT_TRUE(cases.ok()) << cases.status();
  std::vector<std::string> said;
  for (const BenchOptions& one : cases->cases) said.push_back(Said(one));
  return said;
}

TEST(BenchSweepTest, EveryCombinationIsACase) {
  EXPECT_THAT(CasesIn({.collectives = {"all_reduce"}}), ElementsAre("all_reduce f32 sum - -"));
  EXPECT_THAT(CasesIn({.collectives = {"all_reduce", "broadcast"},
                       .dtypes = {DType::kF32, DType::kI32},
                       .ops = {ReduceOp::kSum, ReduceOp::kMax}}),
              ElementsAre("all_reduce f32 sum - -", "all_reduce f32 max - -", "all_reduce i32 sum - -",
                          "all_reduce i32 max - -", "broadcast f32 sum - -", "broadcast i32 sum - -"));
  EXPECT_THAT(
      CasesIn({.collectives = {"all_reduce"}, .codecs = {"none", "bf16", "uint8_block,block=512"}}),
      ElementsAre("all_reduce f32 sum - -", "all_reduce f32 sum bf16 -", "all_reduce f32 sum uint8_block,block=512 -"));
}

TEST(BenchSweepTest, AllMeansEachOne) {
  EXPECT_EQ(ParseCollectives("all").value(), BenchNames());
  EXPECT_EQ(ParseDTypes("all")->size(), kAllDTypes.size());
  EXPECT_EQ(ParseReduceOps("all")->size(), kAllReduceOps.size());
  EXPECT_EQ(CodecsNamed({"all"}).front(), "none");
  EXPECT_THAT(CodecsNamed({"all", "none", "bf16", "bf16,seed=1"}),
              testing::AllOf(testing::Contains("uint8_block"), testing::Contains("bf16").Times(1),
                             testing::Contains("bf16,seed=1")));
  // A schedule that serves no size here is left out when ranks have met, with a note.
  EXPECT_THAT(CasesIn({.collectives = {"all_reduce", "all_gather"}, .schedules = {"all"}}),
              testing::IsSupersetOf(
                  {"all_reduce f32 sum - ring", "all_reduce f32 sum - direct", "all_gather f32 sum - bruck"}));
}

TEST(BenchSweepTest, NamesHaveCommasBetweenThem) {
  EXPECT_THAT(ParseDTypes("bf16,f32,bf16").value(), ElementsAre(DType::kBF16, DType::kF32));
  EXPECT_THAT(ParseScheduleNames("ring,direct").value(), ElementsAre("ring", "direct"));
  EXPECT_THAT(ParseCollectives("all_reduce,barrier").value(), ElementsAre("all_reduce", "barrier"));
  EXPECT_THAT(std::string(ParseDTypes("f32,f33").status().message()), HasSubstr("f33"));
  EXPECT_THAT(std::string(ParseScheduleNames("ring,").status().message()), HasSubstr("write all, or names"));
  EXPECT_THAT(std::string(ParseCollectives("all_reduce,all").status().message()), HasSubstr("all stands alone"));
}

TEST(BenchSweepTest, WhatCannotBeMeasuredIsLeftOutAndSaid) {
  const BenchOptions options = Options();
  const absl::StatusOr<BenchCases> cases =
      CasesOf({.collectives = {"all_reduce"}, .dtypes = {DType::kF32}, .ops = {ReduceOp::kSum, ReduceOp::kBitwiseXor}},
              options, 3);
  ASSERT_TRUE(cases.ok()) << cases.status();
  EXPECT_EQ(cases->cases.size(), 1U);
  ASSERT_EQ(cases->left_out.size(), 1U);
  EXPECT_THAT(cases->left_out[0], HasSubstr("op bxor is not defined for f32"));
  // All collectives of a type that can only be moved: those that reduce are not meant.
  for (const std::string& said : CasesIn({.collectives = BenchNames(), .dtypes = {DType::kF8E5M2}})) {
    EXPECT_THAT(said, testing::Not(HasSubstr("reduce")));
  }
}

// 200 ones are no i8; what is only moved is exact in every type.
TEST(BenchSweepTest, OnlyWhatSumsNeedsAnExactSum) {
  const absl::StatusOr<BenchCases> cases =
      CasesOf({.collectives = BenchNames(), .dtypes = {DType::kI8}}, Options(), 200);
  ASSERT_TRUE(cases.ok()) << cases.status();
  std::vector<std::string> said;
  for (const BenchOptions& one : cases->cases) said.push_back(one.collective);
  EXPECT_THAT(said, testing::IsSupersetOf({"broadcast", "all_gather", "all_to_all", "barrier", "send_recv"}));
  for (const std::string& name : said) EXPECT_THAT(name, testing::Not(HasSubstr("reduce")));
  EXPECT_THAT(cases->left_out, ElementsAre(HasSubstr("a sum over 200 ranks is not exact in i8")));
}

TEST(BenchSweepTest, NothingToMeasureIsAnError) {
  const BenchOptions options = Options();
  const absl::Status operators =
      CasesOf({.collectives = {"all_reduce"}, .ops = {ReduceOp::kBitwiseAnd, ReduceOp::kBitwiseXor}}, options, 3)
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(operators));
  EXPECT_THAT(std::string(operators.message()), HasSubstr("op band is not defined for f32"));
  const absl::Status moved =
      CasesOf({.collectives = {"all_reduce", "reduce"}, .dtypes = {DType::kF8E5M2}}, options, 3).status();
  EXPECT_THAT(std::string(moved.message()), HasSubstr("can be moved but not reduced"));
  const absl::Status unknown =
      CasesOf({.collectives = {"all_reduce"}, .schedules = {"ring", "rings"}}, options, 3).status();
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("unknown schedule 'rings' of all_reduce"));
  const absl::Status codec = CasesOf({.collectives = {"all_reduce"}, .codecs = {"none", "bf17"}}, options, 3).status();
  EXPECT_THAT(std::string(codec.message()), HasSubstr("--codec bf17: unknown codec"));
}

// Sums in messages of a codec are in place.
TEST(BenchSweepTest, CodecsHaveOnePlace) {
  BenchOptions options = Options();
  options.both_places = true;
  options.traffic.in_place = false;
  const absl::StatusOr<BenchCases> cases =
      CasesOf({.collectives = {"all_reduce"}, .codecs = {"none", "bf16"}}, options, 3);
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_EQ(cases->cases.size(), 2U);
  EXPECT_TRUE(cases->cases[0].both_places);
  EXPECT_FALSE(cases->cases[1].both_places);
  EXPECT_TRUE(cases->cases[1].traffic.in_place);
}

}  // namespace
}  // namespace tutti::cli
