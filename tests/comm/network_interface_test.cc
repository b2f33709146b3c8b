#include "comm/network_interface.h"

#include <sched.h>
#include <sys/mount.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/harness/network_namespace.h"
#include "tests/store/temporary_directory.h"

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
  for (const char* text : {"nosuch0", "192.0.2.1", "2001:db8::1", "127.0.0.1:80", "300.0.0.1", "", " lo", "127.0.0.1/",
                           "127.0.0.1/33", "127.0.0.1/-1", "127.0.0.1/8x", "lo/8", "127/8"}) {
    const absl::Status status = FindNetworkInterface(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("TUTTI_INTERFACE=" + std::string(text) +
                                                         " is no network interface, address or subnet of this node"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("lo (127.0.0.1)"));
  }
}

TEST(FindNetworkInterfaceTest, ASubnetMeansTheInterfaceThatHasAnAddressInIt) {
  for (const char* text : {"127.0.0.0/8", "127.0.0.1/32", "127.255.0.7/8", "126.0.0.0/7"}) {
    const absl::StatusOr<NetworkInterface> found = FindNetworkInterface(text);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->device, "lo") << text;
    EXPECT_EQ(found->address, "127.0.0.1") << text;
  }
}

TEST(FindNetworkInterfaceTest, ASubnetOfOthersIsAnsweredWithWhatThereIs) {
  for (const char* text : {"198.51.100.0/24", "127.0.0.0/32", "127.0.0.2/31", "2001:db8::/32"}) {
    const std::string message(FindNetworkInterface(text).status().message());
    EXPECT_THAT(message, HasSubstr("TUTTI_INTERFACE=" + std::string(text) + " is a subnet in which this node has no"));
    EXPECT_THAT(message, HasSubstr("lo (127.0.0.1)"));
  }
}

// The subnet 0.0.0.0/0 has all IPv4 addresses: on a machine that has a network, those of loopback and of the network.
TEST(FindNetworkInterfaceTest, ASubnetOfSeveralInterfacesIsRefused) {
  const absl::StatusOr<NetworkInterface> found = FindNetworkInterface("0.0.0.0/0");
  if (found.ok()) GTEST_SKIP() << "this machine has no interface but " << found->device;
  EXPECT_THAT(
      std::string(found.status().message()),
      HasSubstr("TUTTI_INTERFACE=0.0.0.0/0 has addresses of several interfaces of this node: lo (127.0.0.1), "));
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

// 192.0.2.1 lies nowhere, but most machines have a route that would lead there, and an address from which to send.
TEST(OwnAddressesTest, AreThoseOfThisNodeButLoopback) {
  for (const char* host : {"127.0.0.1", "::1", "127.0.1.1", "localhost", "192.0.2.1", "no host has this name", ""}) {
    EXPECT_TRUE(OwnAddresses(host).empty()) << host;
  }
  const absl::StatusOr<NetworkInterface> outward = InterfaceTowards("192.0.2.1");
  if (!outward.ok()) GTEST_SKIP() << "this machine has no network: " << outward.status();
  const std::vector<NetworkInterface> own = OwnAddresses(outward->address);
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(own[0].device, outward->device);
  EXPECT_EQ(own[0].address, outward->address);
}

// In a namespace whose /etc/hosts gives a name an IPv6 address first, the order of which the look-up keeps.
TEST(OwnAddressesTest, AreThoseOfIPv4First) {
  const TemporaryDirectory directory;
  const std::string hosts = directory.path() + "/hosts";
  std::ofstream(hosts) << "fd00::1 two-addresses\n192.0.2.1 two-addresses\n";
  std::vector<std::string> addresses;
  bool has_hosts = false;
  RunInNetworkNamespace([&] {
    has_hosts = ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                ::mount(hosts.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0 &&
                std::system("ip address add 192.0.2.1 dev lo && ip address add fd00::1 dev lo") == 0;
    for (const NetworkInterface& own : OwnAddresses("two-addresses")) addresses.push_back(own.address);
  });
  if (!has_hosts) GTEST_SKIP() << "making namespaces needs root, and addresses need ip";
  EXPECT_THAT(addresses, testing::ElementsAre("192.0.2.1", "fd00::1"));
}

// In a new network namespace, where loopback is down.
TEST(AwaitRunningTest, AnInterfaceThatIsDownIsToldHowItIsBroughtUp) {
  absl::Status existing, missing;
  bool has_namespace = false;
  std::thread([&] {
    has_namespace = ::unshare(CLONE_NEWNET) == 0;
    existing = AwaitRunning("lo", MonotonicNanos());
    missing = AwaitRunning("nosuch0", MonotonicNanos());
  }).join();
  if (!has_namespace) GTEST_SKIP() << "making a network namespace needs root";
  EXPECT_EQ(existing, absl::DeadlineExceededError("interface lo is down; ip link set lo up brings it up, and "
                                                  "TUTTI_INTERFACE names another interface"));
  EXPECT_TRUE(missing.ok()) << missing;
}

TEST(AwaitRunningTest, LoopbackRuns) { EXPECT_TRUE(AwaitRunning("lo", MonotonicNanos()).ok()); }

TEST(InterfaceTowardsTest, AHostWithoutANameIsAnError) {
  for (const char* host : {"", "no host has this name", "300.0.0.1"}) {
    EXPECT_FALSE(InterfaceTowards(host).ok()) << host;
  }
}

}  // namespace
}  // namespace tutti
