// A socket that listens, in place of a store server's.
#ifndef TUTTI_TESTS_STORE_LISTENING_SOCKET_H_
#define TUTTI_TESTS_STORE_LISTENING_SOCKET_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace tutti {

struct ListeningSocket {
  ListeningSocket() {
    EXPECT_EQ(::listen(fd.get(), 8), 0);  // without bind: at any port, of all addresses
    sockaddr_in name{};
    socklen_t bytes = sizeof(name);
    EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &bytes), 0);
    address = absl::StrCat("127.0.0.1:", ntohs(name.sin_port));
  }

  const UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string address;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_STORE_LISTENING_SOCKET_H_
