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

// 192.0.2.1 is no address of this machine: 192.0.2.0/24 is reserved for documentation.
TEST(FindNetworkInterfaceTest, WhatDoesNotExistIsAnsweredWithWhatDoes) {
  for (const char* text : {"nosuch0", "192.0.2.1", "2001:db8::1", "127.0.0.1:80", "300.0.0.1", "", " lo"}) {
    const absl::Status status = FindNetworkInterface(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("TUTTI_INTERFACE=" + std::string(text) + " is no network interface or address of this node"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("lo (127.0.0.1)"));
  }
}

TEST(FindNetworkInterfaceTest, AnErrorNamesTheSetting) {
  EXPECT_THAT(std::string(FindNetworkInterface("nosuch0", "GLOO_SOCKET_IFNAME").status().message()),
              HasSubstr("GLOO_SOCKET_IFNAME=nosuch0 is no network interface"));
}

TEST(InterfaceTowardsTest, ThisNodeIsReachedByLoopback) {
  for (const char* host : {"127.0.0.1", "localhost", "127.0.1.1"}) {
    const absl::StatusOr<NetworkInterface> found = InterfaceTowards(host);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->device, "lo") << host;
    EXPECT_TRUE(IsLoopbackAddress(found->address)) << found->address;
  }
  EXPECT_FALSE(IsLoopbackAddress("10.0.0.1"));
  EXPECT_TRUE(IsLoopbackAddress("::1"));
}

TEST(InterfaceTowardsTest, AHostWithoutANameIsAnError) {
  for (const char* host : {"", "no host has this name", "300.0.0.1"}) {
    EXPECT_FALSE(InterfaceTowards(host).ok()) << host;
  }
}

}  // namespace
}  // namespace tutti
