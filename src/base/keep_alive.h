// TCP connections that carry nothing for hours.
#ifndef TUTTI_BASE_KEEP_ALIVE_H_
#define TUTTI_BASE_KEEP_ALIVE_H_

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>

namespace tutti {

// Lets the kernel ask the other end of an idle TCP connection whether it is there, after a minute and then every ten
// seconds: firewalls and load balancers forget connections that are silent for some minutes. The kernel of the other
// end answers, also for a process that is stopped. The connection breaks after five minutes without an answer. The
// kernel does not ask while bytes are under way: then the connection breaks when they have not arrived for about
// fifteen minutes (net.ipv4.tcp_retries2). TCP_USER_TIMEOUT would shorten these, but also breaks the connection to a
// process that is stopped and has left its buffer full for so long.
inline void KeepAlive(int socket) {
  const std::pair<int, int> settings[] = {{TCP_KEEPIDLE, 60}, {TCP_KEEPINTVL, 10}, {TCP_KEEPCNT, 24}};
  for (const auto& [name, value] : settings) ::setsockopt(socket, IPPROTO_TCP, name, &value, sizeof(value));
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

}  // namespace tutti

#endif  // TUTTI_BASE_KEEP_ALIVE_H_
