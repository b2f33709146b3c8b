#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/store/child_process.h"
#include "transports/ucx/node_link.h"

namespace tutti::ucx {
namespace {

void Watch(NodeLinks& links, Rank peer, int socket) {
  std::vector<NodePeer> peers(1);
  peers[0].rank = peer;
  peers[0].socket = UnsharedFd(UniqueFd(socket));
  const absl::Status watched = links.Watch(peers);
  ASSERT_TRUE(watched.ok()) << watched;
}

// The kernel says of both ends of a socket pair that they belong to the process that made the pair: the end of rank 1's
// process is to be seen from the socket alone, as that of a process in a PID namespace of its own.
TEST(UcxNodeLink, AForkedChildDoesNotHideTheDeathOfAProcessThatIsNotVisible) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  ChildProcess rank_1([&](const auto& say) {
    ::close(ends[0]);
    NodeLinks links;
    Watch(links, 0, ends[1]);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      while (true) ::pause();
    }
    say(absl::StrCat(child));
    while (true) ::pause();
  });
  ::close(ends[1]);
  NodeLinks links;
  Watch(links, 1, ends[0]);
  pid_t child = -1;
  ASSERT_TRUE(absl::SimpleAtoi(rank_1.NextLine(), &child));
  rank_1.Signal(SIGKILL);
  pollfd news = {links.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&news, 1, 20'000), 1);
  int ended = 0;
  links.Read([&](Rank rank, const Control* control) { ended += rank == 1 && control == nullptr ? 1 : 0; });
  EXPECT_EQ(ended, 1);
  ::kill(child, SIGKILL);
}

}  // namespace
}  // namespace tutti::ucx
