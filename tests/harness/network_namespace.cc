#include "tests/harness/network_namespace.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace tutti {

bool RunInNetworkNamespace(absl::FunctionRef<void()> body) {
  bool has_namespace = false;
  std::thread([&] {
    has_namespace = ::unshare(CLONE_NEWNET) == 0;
    if (!has_namespace) return;
    AddLoopbackAddress("lo", "127.0.0.1");  // also brings loopback up
    body();
  }).join();
  return has_namespace;
}

void AddLoopbackAddress(const std::string& label, const std::string& address) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  label.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  sockaddr_in in = {};
  in.sin_family = AF_INET;
  ASSERT_EQ(::inet_pton(AF_INET, address.c_str(), &in.sin_addr), 1);
  std::memcpy(&request.ifr_addr, &in, sizeof(in));
  ASSERT_EQ(::ioctl(socket.get(), SIOCSIFADDR, &request), 0) << std::strerror(errno);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  ASSERT_EQ(::ioctl(socket.get(), SIOCSIFFLAGS, &request), 0) << std::strerror(errno);
}

}  // namespace tutti
