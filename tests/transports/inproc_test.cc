#include "gmock/gmock.h"
#include "tests/transports/conformance.h"

namespace tutti {
namespace {

// [suite]
std::vector<std::unique_ptr<Transport>> MakeInproc(int size, const TransportOptions& options) {
  const std::shared_ptr<InprocHub> hub = MakeInprocHub(size);
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < size; ++rank) transports.push_back(MakeInprocTransport(hub, options).value());
  return transports;
}

const TransportMaker kInproc = {.name = "inproc", .make = MakeInproc};
INSTANTIATE_TEST_SUITE_P(Inproc, TransportConformance, testing::Values(kInproc), NameOfMaker);
INSTANTIATE_TEST_SUITE_P(Inproc, TransportConformanceSlow, testing::Values(kInproc), NameOfMaker);
// [suite]

TEST(InprocTransport, AHubIsForItsRanksOnly) {
  const std::shared_ptr<InprocHub> hub = MakeInprocHub(1);
  const auto first = MakeInprocTransport(hub, {.region_bytes = 4096});
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(MakeInprocTransport(hub, {.region_bytes = 4096}).status().code(), absl::StatusCode::kFailedPrecondition);
}

// Rank 0 has connected; the Connect of rank 1 fails.
struct HalfConnected {
  HalfConnected() {
    const std::vector<std::string> addresses = {rank_0->Address().value(), rank_1->Address().value()};
    EXPECT_EQ(rank_0->Connect(0, addresses, absl::InfiniteFuture()), absl::OkStatus());
    EXPECT_EQ(rank_1->Connect(1, {"nowhere", addresses[1]}, absl::InfiniteFuture()).code(),
              absl::StatusCode::kInvalidArgument);
  }

  std::vector<std::unique_ptr<Transport>> transports = MakeInproc(2, {.region_bytes = 4096});
  Transport* const rank_0 = transports[0].get();
  Transport* const rank_1 = transports[1].get();
};

TEST(InprocTransport, ARankWhoseConnectHasFailedTellsItsPeersOfItsEnd) {
  const HalfConnected ranks;
  EXPECT_TRUE(ranks.rank_0->Check().empty());
  ranks.rank_1->Shutdown(absl::InternalError("rank 1 is broken"));
  const absl::Span<const Loss> losses = ranks.rank_0->Check();
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].peer, 1);
  EXPECT_THAT(std::string(losses[0].cause.message()), testing::HasSubstr("rank 1 is broken"));
}

TEST(InprocTransport, ARankWhoseConnectHasFailedSaysGoodbye) {
  const HalfConnected ranks;
  EXPECT_FALSE(ranks.rank_0->HasLeft(1));
  ranks.rank_1->Shutdown(absl::OkStatus());
  EXPECT_TRUE(ranks.rank_0->HasLeft(1));
}

TEST(InprocTransport, ARankThatHasNotConnectedAnswersNoQuestion) {
  const HalfConnected ranks;
  ranks.rank_0->AskWaitsFor(1);
  EXPECT_TRUE(ranks.rank_1->Check().empty());
  ranks.rank_0->Check();
  EXPECT_EQ(ranks.rank_0->WaitsFor(1), std::nullopt);
}

TEST(InprocTransport, RejectsAnEmptyRegion) {
  EXPECT_EQ(MakeInprocTransport(MakeInprocHub(1), {.region_bytes = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tutti
