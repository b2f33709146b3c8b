#include "tests/harness/rank_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/time/clock.h"

namespace tutti {
namespace {

// The timeout for poll: at least one millisecond while there is time, so that nobody spins before the deadline.
int PollTimeout(absl::Time deadline) {
  const absl::Duration left = deadline - absl::Now();
  if (left <= absl::ZeroDuration()) return 0;
  return static_cast<int>(absl::ToInt64Milliseconds(std::min(left, absl::Hours(1)))) + 1;
}

}  // namespace

void Lines::Say(const std::string& line) const {
  const std::string text = line + "\n";
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t more = send(socket_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (more <= 0) return;
    sent += static_cast<std::size_t>(more);
  }
}

void Lines::StopHearing() const { shutdown(socket_.get(), SHUT_RD); }

std::optional<std::string> Lines::Hear(absl::Time deadline) {
  while (!has_line()) {
    pollfd readable{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (ended_ || poll(&readable, 1, PollTimeout(deadline)) <= 0) return std::nullopt;
    char bytes[4096];
    const ssize_t got = recv(socket_.get(), bytes, sizeof(bytes), 0);
    if (got <= 0) {
      ended_ = true;
      return std::nullopt;
    }
    unread_.append(bytes, static_cast<std::size_t>(got));
  }
  const std::size_t end = unread_.find('\n');
  std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  return line;
}

RankProcesses::RankProcesses(int size, const Body& body) {
  const pid_t starter = getpid();
  for (Rank rank = 0; rank < size; ++rank) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    const pid_t pid = fork();
    if (pid < 0) std::abort();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != starter) _exit(1);
      close(ends[0]);
      processes_.clear();  // closes the other ranks' connections, which this process does not need
      Lines lines{UniqueFd(ends[1])};
      _exit(body(rank, lines));
    }
    close(ends[1]);
    processes_.push_back({.pid = pid, .lines = Lines(UniqueFd(ends[0])), .wait_status = std::nullopt});
  }
}

RankProcesses::~RankProcesses() {
  for (Rank rank = 0; rank < size(); ++rank) Signal(rank, SIGKILL);
  for (const Process& process : processes_) {
    if (!process.wait_status.has_value()) waitpid(process.pid, nullptr, 0);
  }
}

void RankProcesses::Signal(Rank rank, int signal) const {
  if (!processes_[rank].wait_status.has_value()) kill(processes_[rank].pid, signal);
}

void RankProcesses::Stop(Rank rank) const {
  Signal(rank, SIGSTOP);
  siginfo_t stopped;
  waitid(P_PID, static_cast<id_t>(pid(rank)), &stopped, WSTOPPED | WEXITED | WNOWAIT);
}

std::optional<RankProcesses::Heard> RankProcesses::HearAny(absl::Time deadline) {
  while (true) {
    std::vector<pollfd> open;
    for (Rank rank = 0; rank < size(); ++rank) {
      Process& process = processes_[rank];
      if (std::optional<std::string> line = process.lines.Hear(absl::InfinitePast()))
        return Heard{rank, std::move(line)};
      if (!process.lines.ended()) {
        open.push_back({.fd = process.lines.descriptor(), .events = POLLIN, .revents = 0});
      } else if (!process.end_told) {
        process.end_told = true;
        return Heard{rank, std::nullopt};
      }
    }
    if (open.empty() || poll(open.data(), open.size(), PollTimeout(deadline)) <= 0) return std::nullopt;
  }
}

std::optional<int> RankProcesses::AwaitEnd(Rank rank, absl::Time deadline) {
  Process& process = processes_[rank];
  while (!process.wait_status.has_value()) {
    int status = 0;
    if (waitpid(process.pid, &status, WNOHANG) == process.pid) {
      process.wait_status = status;
    } else if (absl::Now() >= deadline) {
      return std::nullopt;
    } else {
      absl::SleepFor(absl::Milliseconds(2));
    }
  }
  return process.wait_status;
}

}  // namespace tutti
