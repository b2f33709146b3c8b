// Ranks of a test as processes that the test can stop and kill.
#ifndef TUTTI_TESTS_TRANSPORTS_FORKED_RANKS_H_
#define TUTTI_TESTS_TRANSPORTS_FORKED_RANKS_H_

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/transports/conformance.h"

namespace tutti {

// One direction of a pipe that carries whole texts.
class TextPipe {
 public:
  TextPipe() { EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0); }
  ~TextPipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  TextPipe(const TextPipe&) = delete;
  TextPipe& operator=(const TextPipe&) = delete;

  void Write(const std::string& text) {
    const std::string frame = std::string(reinterpret_cast<const char*>(&kMark), 1) + text;
    const auto bytes = static_cast<std::uint32_t>(frame.size());
    ASSERT_EQ(write(ends_[1], &bytes, sizeof(bytes)), static_cast<ssize_t>(sizeof(bytes)));
    ASSERT_EQ(write(ends_[1], frame.data(), frame.size()), static_cast<ssize_t>(frame.size()));
  }
  std::string Read() {
    std::uint32_t bytes = 0;
    ReadAll(&bytes, sizeof(bytes));
    std::string frame(bytes, '\0');
    ReadAll(frame.data(), frame.size());
    return frame.empty() ? "nothing: the rank is gone" : frame.substr(1);
  }
  // Closes the writing end in a process that has forked the writers, so that Read notices when the writers are gone.
  void OnlyRead() { close(std::exchange(ends_[1], -1)); }

 private:
  static constexpr char kMark = 't';

  void ReadAll(void* data, std::size_t bytes) {
    auto* at = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t got = read(ends_[0], at, bytes);
      if (got <= 0) return;
      at += got;
      bytes -= static_cast<std::size_t>(got);
    }
  }

  int ends_[2] = {-1, -1};
};

// A forked rank: its transport, and texts to and from the test.
struct Child : RankDriver {
  Child(Rank r, Transport* t, TextPipe* orders_pipe, TextPipe* reports_pipe)
      : RankDriver(r, t, [] {}), orders(*orders_pipe), reports(*reports_pipe) {}
  TextPipe& orders;
  TextPipe& reports;
};

class ForkedRanks {
 public:
  ForkedRanks(int size, const TransportMaker& maker, const std::function<void(Child&)>& body)
      : orders_(static_cast<std::size_t>(size)), reports_(static_cast<std::size_t>(size)) {
    std::fflush(nullptr);  // otherwise every child would print the buffered output again
    for (Rank rank = 0; rank < size; ++rank) {
      pids_.push_back(fork());
      if (pids_.back() == 0) RunChild(rank, size, maker, body);
    }
    for (TextPipe& pipe : reports_) pipe.OnlyRead();
    std::vector<std::string> addresses;
    for (Rank rank = 0; rank < size; ++rank) addresses.push_back(Report(rank));
    for (TextPipe& orders : orders_) {
      for (const std::string& address : addresses) orders.Write(address);
    }
  }
  ~ForkedRanks() {
    for (Rank rank = 0; rank < static_cast<Rank>(pids_.size()); ++rank) Kill(rank, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }

  std::string Report(Rank rank) { return reports_[static_cast<std::size_t>(rank)].Read(); }
  void Order(Rank rank) { orders_[static_cast<std::size_t>(rank)].Write("go"); }
  void Kill(Rank rank, int signal) {
    if (pids_[static_cast<std::size_t>(rank)] > 0) kill(pids_[static_cast<std::size_t>(rank)], signal);
  }
  // True when the rank ended by itself and without a failed expectation.
  bool EndsWell(Rank rank) {
    int status = 0;
    waitpid(std::exchange(pids_[static_cast<std::size_t>(rank)], -1), &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  [[noreturn]] void RunChild(Rank rank, int size, const TransportMaker& maker,
                             const std::function<void(Child&)>& body) {
    alarm(300);  // a rank that hangs fails its test
    TextPipe& orders = orders_[static_cast<std::size_t>(rank)];
    TextPipe& reports = reports_[static_cast<std::size_t>(rank)];
    for (Rank other = 0; other < size; ++other) {
      if (other != rank) reports_[static_cast<std::size_t>(other)].OnlyRead();
    }
    {
      TransportOptions options;
      options.region_bytes = 1 << 20;
      const std::unique_ptr<Transport> transport = std::move(maker.make(1, options)[0]);
      reports.Write(*transport->Address());
      std::vector<std::string> addresses;
      for (Rank other = 0; other < size; ++other) addresses.push_back(orders.Read());
      const absl::Status connected = transport->Connect(rank, addresses, absl::Now() + absl::Minutes(1));
      EXPECT_TRUE(connected.ok()) << connected;
      Child child(rank, transport.get(), &orders, &reports);
      if (connected.ok()) body(child);
    }
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }

  std::deque<TextPipe> orders_;
  std::deque<TextPipe> reports_;
  std::vector<pid_t> pids_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_TRANSPORTS_FORKED_RANKS_H_
