// A port for a store server, free until the server starts.
#ifndef TUTTI_TESTS_STORE_HELD_PORT_H_
#define TUTTI_TESTS_STORE_HELD_PORT_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace tutti {

// A port of loopback where nobody listens, which the system gives to nobody else meanwhile. A store server may listen
// there.
struct HeldPort {
  HeldPort() {
    const int on = 1;
    EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);  // for the server's sake
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(name);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), bytes), 0);
    EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &bytes), 0);
    number = ntohs(name.sin_port);
    address = absl::StrCat("127.0.0.1:", number);
  }

  const UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t number = 0;
  std::string address;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_STORE_HELD_PORT_H_
