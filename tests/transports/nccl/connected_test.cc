#include "transports/nccl/connected.h"

#include <vector>

#include "gtest/gtest.h"

namespace tutti::nccl {
namespace {

constexpr NativeCall kSend = {.collective = Collective::kSend, .count = 8, .root = 1};
constexpr NativeCall kRecv = {.collective = Collective::kRecv, .count = 8, .root = 1};
constexpr NativeCall kAllReduce = {.count = 8};

NativeCall OfCount(NativeCall call, std::int64_t count) {
  call.count = count;
  return call;
}

TEST(ConnectedTest, AMessageIsKnownByItsPeerAndDirection) {
  Connected connected;
  EXPECT_FALSE(connected.Serves({kSend}));
  connected.Add({kSend});
  EXPECT_TRUE(connected.Serves({kSend}));
  EXPECT_TRUE(connected.Serves({OfCount(kSend, 1'000'000), kSend}));
  EXPECT_FALSE(connected.Serves({kRecv}));
  EXPECT_FALSE(connected.Serves({kSend, kRecv}));
  NativeCall other = kSend;
  other.root = 2;
  EXPECT_FALSE(connected.Serves({other}));
}

TEST(ConnectedTest, TheCollectivesOfAGroupAreKnownTogether) {
  Connected connected;
  connected.Add({kAllReduce});
  EXPECT_TRUE(connected.Serves({kAllReduce}));
  EXPECT_FALSE(connected.Serves({OfCount(kAllReduce, 9)}));
  EXPECT_FALSE(connected.Serves({kAllReduce, kAllReduce}));
  NativeCall other = kAllReduce;
  other.dtype = DType::kF64;
  EXPECT_FALSE(connected.Serves({other}));
  other = kAllReduce;
  other.op = ReduceOp::kProd;
  EXPECT_FALSE(connected.Serves({other}));
  other = kAllReduce;
  other.collective = Collective::kAllGather;
  EXPECT_FALSE(connected.Serves({other}));
  // The memory and the factor of a call are no matter of the peers.
  float value = 0;
  other = kAllReduce;
  other.src = &value;
  other.factor = 2;
  EXPECT_TRUE(connected.Serves({other}));
}

TEST(ConnectedTest, CallsWithoutElementsNeedNoPeer) {
  Connected connected;
  EXPECT_TRUE(connected.Serves({}));
  EXPECT_TRUE(connected.Serves({OfCount(kAllReduce, 0), OfCount(kSend, 0)}));
}

TEST(ConnectedTest, MoreKindsThanItHoldsAreForgotten) {
  Connected connected;
  for (std::size_t count = 1; count <= Connected::kMaxKinds; ++count) {
    connected.Add({OfCount(kAllReduce, static_cast<std::int64_t>(count))});
  }
  EXPECT_TRUE(connected.Serves({OfCount(kAllReduce, 1)}));
  connected.Add({kSend});
  EXPECT_FALSE(connected.Serves({OfCount(kAllReduce, 1)}));
  EXPECT_TRUE(connected.Serves({kSend}));
}

}  // namespace
}  // namespace tutti::nccl
