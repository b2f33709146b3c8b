#include "tests/transports/conformance.h"

namespace tutti {
namespace {

std::vector<std::unique_ptr<Transport>> MakeInproc(int size, const TransportOptions& options) {
  const std::shared_ptr<InprocHub> hub = MakeInprocHub(size);
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < size; ++rank) transports.push_back(MakeInprocTransport(hub, options).value());
  return transports;
}

const TransportMaker kInproc = {.name = "inproc", .make = MakeInproc};
INSTANTIATE_TEST_SUITE_P(Inproc, TransportConformance, testing::Values(kInproc), NameOfMaker);
INSTANTIATE_TEST_SUITE_P(Inproc, TransportConformanceSlow, testing::Values(kInproc), NameOfMaker);

TEST(InprocTransport, AHubIsForItsRanksOnly) {
  const std::shared_ptr<InprocHub> hub = MakeInprocHub(1);
  const auto first = MakeInprocTransport(hub, {.region_bytes = 4096});
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(MakeInprocTransport(hub, {.region_bytes = 4096}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(InprocTransport, RejectsAnEmptyRegion) {
  EXPECT_EQ(MakeInprocTransport(MakeInprocHub(1), {.region_bytes = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(InprocTransport, ATagInUseIsAnError) {
  const auto transport = MakeInprocTransport(MakeInprocHub(1), {.region_bytes = 4096}).value();
  ASSERT_TRUE(transport->Connect(0, {*transport->Address()}, absl::InfiniteFuture()).ok());
  Op first, second;
  transport->endpoint(0).Recv(5, nullptr, 0, &first);
  transport->endpoint(0).Recv(5, nullptr, 0, &second);
  EXPECT_TRUE(transport->Progress());
  EXPECT_EQ(second.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(first.calls, 0);
  transport->Shutdown(absl::OkStatus());
  EXPECT_EQ(first.status.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tutti
