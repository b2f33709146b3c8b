#include "base/call_owner.h"

#include <gtest/gtest.h>

#include <optional>

namespace tutti {
namespace {

using Kind = CallOwner::Kind;

TEST(CallOwner, IsWhatWasPacked) {
  for (const Kind kind : {Kind::kSynchronizer, Kind::kBucketExchange, Kind::kBucket}) {
    for (const Purpose purpose :
         {Purpose::kStep, Purpose::kOverflow, Purpose::kLossScale, Purpose::kFlush, Purpose::kState, Purpose::kUser}) {
      for (const std::uint32_t number : {1U, 2U, CallOwner::kMaxNumber}) {
        const CallOwner owner = {kind, purpose, number};
        EXPECT_EQ(CallOwner::Unpack(owner.Pack()), owner);
      }
    }
  }
}

TEST(CallOwner, OfAUserIsANumber) {
  EXPECT_EQ(DescribeOwner(0, 0), "");
  EXPECT_EQ(DescribeOwner(0, 5), " of owner 0 in round 5");
  EXPECT_EQ(DescribeOwner((1U << 31) - 1, 7), " of owner 2147483647 in round 7");
  EXPECT_EQ(ExplainOwners(1, 7, 2, 7), "");
  EXPECT_EQ(ExplainOwners(1, 7, CallOwner{.number = 1}.Pack(), 7), "");
}

// A peer may have written any number.
TEST(CallOwner, ThatNobodyPacksIsANumber) {
  for (const std::uint32_t owner : {~0U, 3U << 30 | 1U << 29, 1U << 31 | 6U << 26, 1U << 31 | 7U << 26}) {
    EXPECT_EQ(CallOwner::Unpack(owner), std::nullopt) << owner;
  }
}

TEST(CallOwner, IsToldInWords) {
  const auto text = [](Kind kind, Purpose purpose, std::uint64_t round) {
    return DescribeOwner(CallOwner{kind, purpose, 2}.Pack(), round);
  };
  EXPECT_EQ(text(Kind::kSynchronizer, Purpose::kStep, 13), " for the exchange of synchronizer 2, round 13");
  EXPECT_EQ(text(Kind::kSynchronizer, Purpose::kStep, kRepeatedRound + 13),
            " for the exchange of synchronizer 2, round 13, after an exception has ended a backward()");
  EXPECT_EQ(text(Kind::kSynchronizer, Purpose::kState, 0),
            " for BroadcastState, CheckState, LoadState or Agree of synchronizer 2");
  EXPECT_EQ(text(Kind::kBucketExchange, Purpose::kLossScale, 0), " for SetLossScale of bucket exchange 2");
  EXPECT_EQ(text(Kind::kBucket, Purpose::kStep, 1), " for the exchange of bucket 2, round 1");
}

TEST(CallOwner, WhatIsWrongIsToldWhereItCanBe) {
  const auto wrong = [](CallOwner one, std::uint64_t round_of_one, CallOwner other, std::uint64_t round_of_other) {
    return ExplainOwners(one.Pack(), round_of_one, other.Pack(), round_of_other);
  };
  const CallOwner step = {.number = 1};
  const CallOwner flush = {.purpose = Purpose::kFlush, .number = 1};
  EXPECT_EQ(wrong(step, 3, step, 3), "");
  EXPECT_EQ(wrong(step, 3, step, 4), "; one rank has left out a backward() or a LoadState()");
  EXPECT_EQ(wrong(step, 3, step, kRepeatedRound + 3),
            "; after an exception in a backward() all ranks must repeat that backward()");
  EXPECT_EQ(wrong(step, 3, flush, 3),
            "; the ranks have made unequal numbers of steps, or other calls between the steps");
  EXPECT_EQ(wrong(step, 3, {.number = 2}, 3),
            "; the ranks train their models in different orders: give each model a communicator of its own");
}

TEST(CallOwner, WhatIsWrongWithCallsOfBucketExchangesIsTold) {
  const auto wrong = [](CallOwner one, std::uint64_t round_of_one, CallOwner other, std::uint64_t round_of_other) {
    return ExplainOwners(one.Pack(), round_of_one, other.Pack(), round_of_other);
  };
  const CallOwner bucket = {.kind = Kind::kBucket, .number = 4};
  const CallOwner exchange = {.kind = Kind::kBucketExchange, .purpose = Purpose::kLossScale, .number = 1};
  const CallOwner other_exchange = {.kind = Kind::kBucketExchange, .purpose = Purpose::kLossScale, .number = 2};
  EXPECT_EQ(wrong(bucket, 3, {.kind = Kind::kBucket, .number = 5}, 3),
            "; the ranks exchange their buckets in different orders");
  EXPECT_EQ(wrong(bucket, 3, bucket, 4), "; one rank has left out an Exchange() of the bucket");
  for (const CallOwner& another : {bucket, other_exchange}) {
    EXPECT_EQ(wrong(exchange, 0, another, 0),
              "; the ranks make the calls of their bucket exchanges in different orders");
  }
  EXPECT_EQ(wrong({.number = 1}, 3, bucket, 3),
            "; the ranks train their models in different orders: give each model a communicator of its own");
}

}  // namespace
}  // namespace tutti
