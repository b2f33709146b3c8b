#include "comm/network_interface.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti {
namespace {

using testing::HasSubstr;

TEST(FindNetworkInterfaceTest, ADeviceAndItsAddressMeanTheSame) {
  for (const char* text : {"lo", "127.0.0.1"}) {
    const absl::StatusOr<NetworkInterface> found = FindNetworkInterface(text);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->device, "lo");
    EXPECT_EQ(found->address, "127.0.0.1");
  }
}

TEST(FindNetworkInterfaceTest, ReadsAddressesHoweverTheyAreWritten) {
  const absl::StatusOr<NetworkInterface> found = FindNetworkInterface("0:0:0:0:0:0:0:1");
  if (!found.ok()) GTEST_SKIP() << "this machine has no IPv6: " << found.status();
  EXPECT_EQ(found->device, "lo");
  EXPECT_EQ(found->address, "::1");
}

// 192.0.2.0/24 is kept for documentation.
TEST(FindNetworkInterfaceTest, WhatDoesNotExistIsAnsweredWithWhatDoes) {
  for (const char* text : {"nosuch0", "192.0.2.1", "2001:db8::1", "127.0.0.1:80", "300.0.0.1", "", " lo"}) {
    const absl::Status status = FindNetworkInterface(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("TUTTI_INTERFACE=" + std::string(text) + " is no network interface or address of this node"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("lo (127.0.0.1)"));
  }
}

}  // namespace
}  // namespace tutti
