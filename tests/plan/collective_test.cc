#include "tutti/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

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
  EXPECT_EQ(ErrorOf({.collective = Collective::kAllToAllV, .send_counts = {1, 2}, .recv_counts = {1, 0}}, 0, 2), "");
}

TEST(CollectiveTest, ErrorsNameTheField) {
  EXPECT_THAT(ErrorOf({}, 0, 0), HasSubstr("size 0 must be at least 1"));
  EXPECT_THAT(ErrorOf({}, 4, 4), HasSubstr("all_reduce of rank 4: rank must be in 0…3"));
  EXPECT_THAT(ErrorOf({.count = -1}), HasSubstr("count -1"));
  EXPECT_THAT(ErrorOf({.count = std::numeric_limits<std::int64_t>::max() / 8}), HasSubstr("count 1152921504606846975"));
  EXPECT_THAT(ErrorOf({.collective = Collective::kBarrier, .count = 1}), HasSubstr("count 1 must be 0"));
  EXPECT_THAT(ErrorOf({.collective = Collective::kBroadcast, .root = 4}), HasSubstr("root 4 must be in 0…3"));
  EXPECT_THAT(ErrorOf({.collective = Collective::kRecv, .root = 2}, 2), HasSubstr("root 2 (the peer) must be another"));
  EXPECT_THAT(ErrorOf({.send_counts = {1}}), HasSubstr("send_counts must be empty"));
  EXPECT_THAT(ErrorOf({.collective = Collective::kAllToAllV, .send_counts = {1}}, 0, 2),
              HasSubstr("send_counts has 1 entries; it needs one per rank, 2"));
  EXPECT_THAT(ErrorOf({.collective = Collective::kAllToAllV, .send_counts = {1, 2}, .recv_counts = {1, -2}}, 0, 2),
              HasSubstr("recv_counts[1] = -2"));
  EXPECT_THAT(ErrorOf({.collective = Collective::kAllToAllV, .send_counts = {1, 2}, .recv_counts = {2, 2}}, 0, 2),
              HasSubstr("send_counts[0] = 1 must equal recv_counts[0] = 2"));
  for (Collective collective : {Collective::kAllToAll, Collective::kBarrier, Collective::kSend, Collective::kRecv}) {
    EXPECT_THAT(ErrorOf({.collective = collective, .root = 1, .in_place = true}), HasSubstr("in_place must be false"));
  }
}

TEST(CollectiveTest, ValuesThatAreNoEnumeratorsAreRefusedByNumber) {
  EXPECT_EQ(ErrorOf({.collective = Collective{55}}), "? of rank 0: collective 55 must be in 0…11");
  EXPECT_EQ(ErrorOf({.dtype = DType{99}}), "all_reduce of rank 0: dtype 99 must be in 0…7");
  EXPECT_EQ(ErrorOf({.op = ReduceOp{99}}), "all_reduce of rank 0: op 99 must be in 0…4");
  EXPECT_EQ(ToString({.collective = Collective{12}, .dtype = DType{8}}), "? ? count=0");
  EXPECT_EQ(Name(ReduceOp{5}), "?");
}

// 2^47 bytes.
TEST(CollectiveTest, ABufferHoldsNoMoreThanAProcessCanAddress) {
  constexpr std::int64_t kMost = std::int64_t{1} << 45;  // of f32
  EXPECT_EQ(ErrorOf({.count = kMost}), "");
  EXPECT_EQ(ErrorOf({.count = kMost + 1}),
            "all_reduce of rank 0: count 35184372088833 is not in 0…35184372088832: a buffer holds at most "
            "140737488355328 bytes of f32");
  for (Collective blocks : {Collective::kReduceScatter, Collective::kAllGather, Collective::kGather,
                            Collective::kScatter, Collective::kAllToAll}) {
    // At every rank alike, also where only the root has the long buffer.
    for (Rank rank : {0, 1}) {
      EXPECT_EQ(ErrorOf({.collective = blocks, .count = kMost / 4}, rank), "");
      EXPECT_THAT(ErrorOf({.collective = blocks, .count = kMost / 4 + 1}, rank),
                  HasSubstr("count 8796093022209 is not"));
    }
  }
  CollectiveSpec v{.collective = Collective::kAllToAllV, .send_counts = {1, kMost - 1}, .recv_counts = {1, 0}};
  EXPECT_EQ(ErrorOf(v, 0, 2), "");
  v.recv_counts[1] = kMost;
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
