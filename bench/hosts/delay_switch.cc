// A switch between network interfaces, which holds every frame for the same time and loses one of N at random, none
// where N is 0:
//
//   delay_switch MICROSECONDS N INTERFACE INTERFACE...        prints "ready", then runs until it is killed
//
// The kernels on which hosts are made (links.py) need not have netem, nor another queue that delays packets: tbf and
// htb only limit a rate, and a packet's time of departure, which a program of tc could set, is kept by fq and etf
// alone, which are missing like netem. Hence packet sockets: a frame is copied twice, but a whole segment of TCP (64
// KB, with its virtio_net_hdr) is one frame, so that one core carries 10 Gb/s. What a port sends still passes the
// port's shaper.
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Address = std::array<unsigned char, ETH_ALEN>;

// The size of virtio_net_hdr, whose header is not C++ (a member's name is `class`).
constexpr std::size_t kOffloadBytes = 10;
// The longest frame: a segment of TCP whose IP header says 64 KB, and what precedes that header.
constexpr std::size_t kMaxBytes = kOffloadBytes + ETH_HLEN + 65536;
// Frames that may wait at once; when as many wait, later frames stay in the sockets, which drop what does not fit.
constexpr std::size_t kMaxFrames = 8192;
// Frames that are taken from a port before frames that are due are sent.
constexpr int kMaxTaken = 32;
// Bytes of a socket's queues: more than a link carries in the longest delay, so that shapers alone drop.
constexpr int kSocketBytes = 64 << 20;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "delay_switch: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

void Require(int result, const char* what) {
  if (result < 0) Fail(what);
}

// A socket that receives all frames that arrive at an interface, and sends from there.
int OpenPort(const char* interface) {
  const unsigned index = if_nametoindex(interface);
  if (index == 0) Fail(interface);
  const int port = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  Require(port, "socket");
  const int yes = 1;
  Require(setsockopt(port, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof yes), "PACKET_VNET_HDR");
  Require(setsockopt(port, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes), "PACKET_IGNORE_OUTGOING");
  Require(setsockopt(port, SOL_SOCKET, SO_RCVBUFFORCE, &kSocketBytes, sizeof kSocketBytes), "SO_RCVBUFFORCE");
  Require(setsockopt(port, SOL_SOCKET, SO_SNDBUFFORCE, &kSocketBytes, sizeof kSocketBytes), "SO_SNDBUFFORCE");
  sockaddr_ll address = {};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(index);
  Require(bind(port, reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
  return port;
}

using Buffer = std::unique_ptr<char[]>;  // kMaxBytes

struct Frame {
  Clock::time_point due;
  std::size_t from;   // port
  Buffer buffer;      // a virtio_net_hdr and the frame
  std::size_t bytes;  // of both

  // The address that begins `offset` bytes behind the start of the frame.
  Address AddressAt(std::size_t offset) const {
    Address address;
    std::memcpy(address.data(), buffer.get() + kOffloadBytes + offset, address.size());
    return address;
  }
};

class Switch {
 public:
  Switch(Clock::duration delay, unsigned long lost_of, std::vector<int> ports)
      : delay_(delay), lost_of_(lost_of), ports_(std::move(ports)) {}

  [[noreturn]] void Run() {
    while (true) {
      SendDue();
      WaitForFrames();
      for (std::size_t port = 0; port < ports_.size(); ++port) Take(port);
    }
  }

 private:
  void WaitForFrames() const {
    std::vector<pollfd> polled;
    for (const int port : ports_) polled.push_back({port, POLLIN, 0});
    if (waiting_.empty()) {
      ppoll(polled.data(), polled.size(), nullptr, nullptr);
      return;
    }
    const auto left = std::max(waiting_.front().due - Clock::now(), Clock::duration::zero());
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    const timespec limit = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    ppoll(polled.data(), waiting_.size() < kMaxFrames ? polled.size() : 0, &limit, nullptr);
  }

  void Take(std::size_t port) {
    for (int taken = 0; taken < kMaxTaken && waiting_.size() < kMaxFrames; ++taken) {
      if (spare_.empty()) spare_.push_back(std::make_unique_for_overwrite<char[]>(kMaxBytes));
      const ssize_t bytes = recv(ports_[port], spare_.back().get(), kMaxBytes, 0);
      if (bytes < static_cast<ssize_t>(kOffloadBytes + ETH_HLEN)) return;
      if (lost_of_ != 0 && random_() % lost_of_ == 0) continue;
      waiting_.push_back({Clock::now() + delay_, port, std::move(spare_.back()), static_cast<std::size_t>(bytes)});
      spare_.pop_back();
      port_of_[waiting_.back().AddressAt(ETH_ALEN)] = port;
    }
  }

  void SendDue() {
    while (!waiting_.empty() && waiting_.front().due <= Clock::now()) {
      Frame& frame = waiting_.front();
      const auto known = port_of_.find(frame.AddressAt(0));
      for (std::size_t port = 0; port < ports_.size(); ++port) {
        if (port == frame.from || (known != port_of_.end() && known->second != port)) continue;
        // A shaper whose queue is full drops the frame, and send fails: so do links.
        (void)send(ports_[port], frame.buffer.get(), frame.bytes, 0);
      }
      spare_.push_back(std::move(frame.buffer));
      waiting_.pop_front();
    }
  }

  const Clock::duration delay_;
  const unsigned long lost_of_;  // frames of which one is lost; 0 of none
  std::mt19937_64 random_;       // from the same seed always, so that runs lose alike
  const std::vector<int> ports_;
  std::map<Address, std::size_t> port_of_;
  std::deque<Frame> waiting_;  // in the order of `due`, which is that of arrival
  std::vector<Buffer> spare_;  // allocated, because allocating takes longer than copying a short frame
};

// Frames wait for their time and not for ranks that poll on all cores.
void RunBeforeOtherProcesses() {
  sched_param parameters = {};
  parameters.sched_priority = 1;
  Require(sched_setscheduler(0, SCHED_FIFO, &parameters), "sched_setscheduler");
}

}  // namespace

int main(int argc, char** argv) {
  const long microseconds = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 0;
  const unsigned long lost_of = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
  if (argc < 5 || microseconds <= 0) {
    std::fprintf(stderr, "usage: %s MICROSECONDS N INTERFACE INTERFACE...\n", argv[0]);
    return 2;
  }
  Require(prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl");  // ends with the script that started the switch
  std::vector<int> ports;
  for (int i = 3; i < argc; ++i) ports.push_back(OpenPort(argv[i]));
  RunBeforeOtherProcesses();
  std::puts("ready");
  std::fflush(stdout);
  Switch(std::chrono::microseconds(microseconds), lost_of, std::move(ports)).Run();
}
