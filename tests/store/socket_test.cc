#include "store/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/harness/network_namespace.h"
#include "tests/store/child_process.h"
#include "tests/store/listening_socket.h"
#include "tutti/store.h"

namespace tutti {
namespace {

std::int64_t SoonNanos() { return NanosIn(absl::Seconds(60)); }

// In a new network namespace, whose connections come from one port only: a connection to this port is made from it.
TEST(ConnectTcpTest, ASocketDoesNotMeetItself) {
  constexpr const char* kPort = "29400";
  absl::Status status, served;
  bool has_range = false;
  const bool has_run = RunInNetworkNamespace([&] {
    std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
    range << kPort << " " << kPort << std::endl;
    has_range = range.good();
    status = ConnectTcp(absl::StrCat("127.0.0.1:", kPort), SoonNanos()).status();
    served = TcpStoreServer::Start({RandomJobSecret(), "job", 1}, {.port = 29400}).status();
  });
  if (!has_run || !has_range) GTEST_SKIP() << "making a network namespace needs root, and a /proc/sys to write to";
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("nobody listens"));
  EXPECT_TRUE(served.ok()) << served << ": the socket holds the port on";
}

// The descriptors of this process whose connections are being made.
int Connecting() {
  int connecting = 0;
  for (const int fd : OpenDescriptors()) {
    tcp_info info = {};
    socklen_t bytes = sizeof(info);
    const bool is_tcp = ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0;
    connecting += is_tcp && info.tcpi_state == TCP_SYN_SENT ? 1 : 0;
  }
  return connecting;
}

// The client's end and the server's: a minute of silence is less than any firewall takes to forget a connection.
TEST(KeepAliveTest, BothEndsOfAConnectionOfTheStoreAreKept) {
  const JobKey job{RandomJobSecret(), "job", 1};
  const auto server = TcpStoreServer::Start(job).value();
  const auto store = ConnectTcpStore(server->address(), job, 0, absl::Now() + absl::Seconds(60));
  ASSERT_TRUE(store.ok()) << store.status();
  int ends = 0;
  for (const int fd : OpenDescriptors()) {
    tcp_info info = {};
    socklen_t bytes = sizeof(info), int_bytes = sizeof(int);
    const bool is_tcp = ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0;
    if (!is_tcp || info.tcpi_state != TCP_ESTABLISHED) continue;
    int on = 0, idle = 0;
    EXPECT_EQ(::getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &int_bytes), 0);
    EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &int_bytes), 0);
    EXPECT_EQ(on, 1);
    EXPECT_EQ(idle, 60);
    ++ends;
  }
  EXPECT_EQ(ends, 2);
}

// The queue of the socket that listens is full, so that the kernel makes no further connection.
TEST(ConnectTcpTest, NoChildThatIsForkedMeanwhileKeepsTheSocket) {
  const ListeningSocket listening;
  ASSERT_EQ(::listen(listening.fd.get(), 0), 0);
  const absl::StatusOr<UnsharedFd> queued = ConnectTcp(listening.address, SoonNanos());
  ASSERT_TRUE(queued.ok()) << queued.status();
  std::atomic<bool> ended = false;
  std::thread connects([&] {
    ConnectTcp(listening.address, NanosIn(absl::Milliseconds(300))).status().IgnoreError();
    ended = true;
  });
  while (Connecting() == 0 && !ended) ::sched_yield();
  ChildProcess child([&](const auto& say) { say(absl::StrCat(Connecting())); });
  EXPECT_EQ(child.NextLine(), "0");
  connects.join();
}

}  // namespace
}  // namespace tutti
