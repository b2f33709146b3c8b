#include "store/socket.h"

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/harness/network_namespace.h"

namespace tutti {
namespace {

std::int64_t SoonNanos() { return NanosIn(absl::Seconds(60)); }

// In a new network namespace, whose connections come from one port only: a connection to this port is made from it.
TEST(ConnectTcpTest, ASocketDoesNotMeetItself) {
  constexpr const char* kPort = "29400";
  absl::Status status;
  bool has_range = false;
  const bool has_run = RunInNetworkNamespace([&] {
    std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
    range << kPort << " " << kPort << std::endl;
    has_range = range.good();
    status = ConnectTcp(absl::StrCat("127.0.0.1:", kPort), SoonNanos()).status();
  });
  if (!has_run || !has_range) GTEST_SKIP() << "making a network namespace needs root, and a /proc/sys to write to";
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("nobody listens"));
}

}  // namespace
}  // namespace tutti
