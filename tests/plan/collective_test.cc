#include "tutti/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/harness/source_folder.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const CollectiveSpec& spec, Rank rank = 0, int size = 4) {
  return std::string(Validate(spec, rank, size).message());
}

TEST(CollectiveTest, NamesParseBack) {
  for (Collective collective : kAllCollectives) EXPECT_EQ(*ParseCollective(Name(collective)), collective);
  const absl::Status status = ParseCollective("allreduce").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'allreduce'; valid: all_reduce, reduce_scatter"));
}

TEST(CollectiveTest, WhatTheFieldsOfASpecMeanFor) {
  struct Row {
    Collective collective;
    bool reduces, has_root, has_in_place_form;
  };
  for (const Row& row :
       {Row{Collective::kAllReduce, true, false, true}, Row{Collective::kReduceScatter, true, false, true},
        Row{Collective::kAllGather, false, false, true}, Row{Collective::kBroadcast, false, true, true},
        Row{Collective::kReduce, true, true, true}, Row{Collective::kGather, false, true, true},
        Row{Collective::kScatter, false, true, true}, Row{Collective::kAllToAll, false, false, false},
        Row{Collective::kAllToAllV, false, false, false}, Row{Collective::kBarrier, false, false, false},
        Row{Collective::kSend, false, true, false}, Row{Collective::kRecv, false, true, false}}) {
    EXPECT_EQ(Reduces(row.collective), row.reduces) << Name(row.collective);
    EXPECT_EQ(HasRoot(row.collective), row.has_root) << Name(row.collective);
    EXPECT_EQ(HasInPlaceForm(row.collective), row.has_in_place_form) << Name(row.collective);
  }
}

TEST(CollectiveTest, CountsOfInputAndOutput) {
  struct Row {
    Collective collective;
    std::int64_t in_root, out_root, in_other, out_other;
  };
  for (const Row& row : {Row{Collective::kAllReduce, 3, 3, 3, 3}, Row{Collective::kReduceScatter, 12, 3, 12, 3},
                         Row{Collective::kAllGather, 3, 12, 3, 12}, Row{Collective::kBroadcast, 3, 3, 0, 3},
                         Row{Collective::kReduce, 3, 3, 3, 0}, Row{Collective::kGather, 3, 12, 3, 0},
                         Row{Collective::kScatter, 12, 3, 0, 3}, Row{Collective::kAllToAll, 12, 12, 12, 12},
                         Row{Collective::kBarrier, 0, 0, 0, 0}, Row{Collective::kSend, 3, 0, 3, 0},
                         Row{Collective::kRecv, 0, 3, 0, 3}}) {
    CollectiveSpec spec{.collective = row.collective, .count = 3, .root = 1};
    EXPECT_EQ(InputCount(spec, 1, 4), row.in_root) << ToString(spec);
    EXPECT_EQ(OutputCount(spec, 1, 4), row.out_root) << ToString(spec);
    EXPECT_EQ(InputCount(spec, 2, 4), row.in_other) << ToString(spec);
    EXPECT_EQ(OutputCount(spec, 2, 4), row.out_other) << ToString(spec);
  }
  const CollectiveSpec v{.collective = Collective::kAllToAllV, .send_counts = {1, 2}, .recv_counts = {1, 5}};
  EXPECT_EQ(InputCount(v, 0, 2), 3);
  EXPECT_EQ(OutputCount(v, 0, 2), 6);
}

TEST(CollectiveTest, AcceptsWhatMakesSense) {
  EXPECT_EQ(ErrorOf({.count = 0}), "");
  EXPECT_EQ(ErrorOf({.count = 7, .in_place = true}, 3, 4), "");
  EXPECT_EQ(ErrorOf({.collective = Collective::kBarrier}), "");
  EXPECT_EQ(ErrorOf({.collective = Collective::kSend, .count = 1, .root = 3}), "");
  EXPECT_EQ(ErrorOf({.collective = Collective::kSend, .count = 1, .root = 2}, 2), "");
  EXPECT_EQ(ErrorOf({.collective = Collective::kRecv, .count = 1, .root = kAnySource}), "");
  EXPECT_EQ(ErrorOf({.collective = Collective::kAllToAllV, .send_counts = {1, 2}, .recv_counts = {1, 0}}, 0, 2), "");
}

TEST(CollectiveTest, ErrorsNameTheField) {
  EXPECT_THAT(ErrorOf({}, 0, 0), HasSubstr("size 0 must be at least 1"));
  EXPECT_THAT(ErrorOf({}, 4, 4), HasSubstr("all_reduce of rank 4: rank must be in 0…3"));
  EXPECT_THAT(ErrorOf({.count = -1}), HasSubstr("count -1"));
  EXPECT_THAT(ErrorOf({.count = std::numeric_limits<std::int64_t>::max() / 8}), HasSubstr("count 1152921504606846975"));
  EXPECT_THAT(ErrorOf({.collective = Collective::kBarrier, .count = 1}), HasSubstr("count 1 must be 0"));
  EXPECT_THAT(ErrorOf({.collective = Collective::kBroadcast, .root = 4}), HasSubstr("root 4 must be in 0…3"));
  EXPECT_THAT(ErrorOf({.collective = Collective::kRecv, .root = -1}),
              HasSubstr("recv of rank 0: from -1 must be in 0…3, or kAnySource (-2)"));
  EXPECT_THAT(ErrorOf({.collective = Collective::kSend, .root = kAnySource}),
              HasSubstr("send of rank 0: to -2 must be in 0…3"));
  EXPECT_THAT(ErrorOf({.send_counts = {1}}), HasSubstr("send_counts must be empty"));
  EXPECT_THAT(ErrorOf({.collective = Collective::kAllToAllV, .send_counts = {1}}, 0, 2),
              HasSubstr("send_counts has 1 entries; it needs one per rank, 2"));
  EXPECT_THAT(ErrorOf({.collective = Collective::kAllToAllV, .send_counts = {1, 2}, .recv_counts = {1, -2}}, 0, 2),
              HasSubstr("recv_counts[1] = -2"));
  EXPECT_THAT(
      ErrorOf({.collective = Collective::kAllToAllV, .send_counts = {1, 2}, .recv_counts = {2, 2}}, 0, 2),
      HasSubstr(
          "send_counts[0] = 1 must equal recv_counts[0] = 2: both are the length of the block of rank 0 to itself"));
  for (Collective collective : {Collective::kAllToAll, Collective::kBarrier, Collective::kSend, Collective::kRecv}) {
    EXPECT_THAT(ErrorOf({.collective = collective, .root = 1, .in_place = true}), HasSubstr("in_place must be false"));
  }
}

TEST(CollectiveTest, TypesAndOperatorsKeepTheirNumbers) {
  for (std::size_t i = 0; i < kAllDTypes.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(kAllDTypes[i]), i);
    EXPECT_EQ(*ParseDType(Name(kAllDTypes[i])), kAllDTypes[i]);
    EXPECT_GT(SizeOf(kAllDTypes[i]), 0);
  }
  for (std::size_t i = 0; i < kAllReduceOps.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(kAllReduceOps[i]), i);
    EXPECT_EQ(*ParseReduceOp(Name(kAllReduceOps[i])), kAllReduceOps[i]);
  }
}

TEST(CollectiveTest, WhatCannotBeReducedCanStillBeMoved) {
  EXPECT_EQ(ErrorOf({.dtype = DType::kF8E4M3FN}),
            "all_reduce of rank 0: op sum is not defined for f8e4m3fn, which can be moved (all_gather, broadcast, send "
            "…) but not reduced: reduce in f32, f16 or bf16");
  EXPECT_EQ(ErrorOf({.collective = Collective::kReduce, .dtype = DType::kBF16, .op = ReduceOp::kBitwiseXor}),
            "reduce of rank 0: op bxor is not defined for bf16; valid for bf16: sum, avg, min, max, prod, premul_sum");
  EXPECT_EQ(ErrorOf({.collective = Collective::kReduceScatter, .dtype = DType::kC64, .op = ReduceOp::kMax}),
            "reduce_scatter of rank 0: op max is not defined for c64; valid for c64: sum, avg, prod, premul_sum");
  EXPECT_EQ(
      ErrorOf({.dtype = DType::kBool, .op = ReduceOp::kAvg}),
      "all_reduce of rank 0: op avg is not defined for bool; valid for bool: sum, min, max, prod, band, bor, bxor; "
      "for the share of ranks that are true, average f32");
  EXPECT_EQ(
      ErrorOf({.dtype = DType::kI32, .op = ReduceOp::kPremulSum}),
      "all_reduce of rank 0: op premul_sum is not defined for i32; valid for i32: sum, avg, min, max, prod, band, "
      "bor, bxor");
  for (DType dtype : kAllDTypes) {
    for (Collective collective : kAllCollectives) {
      if (Reduces(collective)) continue;
      CollectiveSpec spec{.collective = collective, .dtype = dtype, .root = HasRoot(collective) ? 1 : 0};
      if (collective == Collective::kAllToAllV) spec.send_counts = spec.recv_counts = {1, 2, 3, 4};
      EXPECT_EQ(ErrorOf(spec), "");
    }
  }
}

TEST(CollectiveTest, TheDocsHaveTheOperatorsOfEveryType) {
  std::ifstream page(SourceFolder() / "docs/types.md");
  std::string text((std::istreambuf_iterator<char>(page)), std::istreambuf_iterator<char>());
  for (DType dtype : kAllDTypes) {
    const std::string row_begin = absl::StrCat("\n| `", Name(dtype), "` | ", SizeOf(dtype), " | ");
    const std::size_t begin = text.find(row_begin);
    ASSERT_NE(begin, text.npos) << row_begin;
    const std::string row = text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
    std::string ops;
    for (ReduceOp op : kAllReduceOps) {
      if (HasOp(dtype, op)) absl::StrAppend(&ops, ops.empty() ? "" : " ", Name(op));
    }
    const std::string row_end = absl::StrCat(" | ", ops.empty() ? "none: it can only be moved" : ops, " |");
    EXPECT_EQ(row.substr(row.size() - std::min(row.size(), row_end.size())), row_end);
  }
}

TEST(CollectiveTest, ValuesThatAreNoEnumeratorsAreRefusedByNumber) {
  EXPECT_EQ(ErrorOf({.collective = Collective{55}}), "? of rank 0: collective 55 must be in 0…11");
  EXPECT_EQ(ErrorOf({.dtype = DType{99}}), "all_reduce of rank 0: dtype 99 must be in 0…16");
  EXPECT_EQ(ErrorOf({.op = ReduceOp{99}}), "all_reduce of rank 0: op 99 must be in 0…8");
  EXPECT_EQ(ToString({.collective = Collective{12}, .dtype = DType{17}}), "? ? count=0");
  EXPECT_EQ(Name(ReduceOp{9}), "?");
}

// The address space of a process has 2^47 bytes.
TEST(CollectiveTest, ABufferHoldsNoMoreThanAProcessCanAddress) {
  constexpr std::int64_t kMax = std::int64_t{1} << 45;  // elements of f32
  EXPECT_EQ(ErrorOf({.count = kMax}), "");
  EXPECT_EQ(ErrorOf({.count = kMax + 1}),
            "all_reduce of rank 0: count 35184372088833 is not in 0…35184372088832: a buffer holds at most "
            "140737488355328 bytes of f32");
  for (Collective blocks : {Collective::kReduceScatter, Collective::kAllGather, Collective::kGather,
                            Collective::kScatter, Collective::kAllToAll}) {
    // Every rank refuses the call, also where only the root has the long buffer.
    for (Rank rank : {0, 1}) {
      EXPECT_EQ(ErrorOf({.collective = blocks, .count = kMax / 4}, rank), "");
      EXPECT_THAT(ErrorOf({.collective = blocks, .count = kMax / 4 + 1}, rank),
                  HasSubstr("count 8796093022209 is not"));
    }
  }
  CollectiveSpec v{.collective = Collective::kAllToAllV, .send_counts = {1, kMax - 1}, .recv_counts = {1, 0}};
  EXPECT_EQ(ErrorOf(v, 0, 2), "");
  v.recv_counts[1] = kMax;
  EXPECT_THAT(ErrorOf(v, 0, 2), HasSubstr("recv_counts[1] = 35184372088832 is not in 0…35184372088831"));
}

TEST(CollectiveTest, PrintsWhatMatters) {
  EXPECT_EQ(ToString({.count = 1024}), "all_reduce f32 sum count=1024");
  EXPECT_EQ(ToString({.collective = Collective::kGather, .dtype = DType::kU8, .count = 3, .root = 2, .in_place = true}),
            "gather u8 count=3 root=2 in_place");
  EXPECT_EQ(ToString({.collective = Collective::kAllToAllV, .send_counts = {1, 2}, .recv_counts = {1, 0}}),
            "all_to_all_v f32 send_counts=1,2 recv_counts=1,0");
  EXPECT_EQ(ToString({.collective = Collective::kBarrier}), "barrier");
}

}  // namespace
}  // namespace tutti
