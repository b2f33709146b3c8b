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

TEST(InprocTransport, RejectsAnEmptyRegion) {
  EXPECT_EQ(MakeInprocTransport(MakeInprocHub(1), {.region_bytes = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tutti
