#include "bindings/cli/launch/supervision.h"

#include <dirent.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "bindings/cli/launch/process.h"

namespace tutti {
namespace {

constexpr absl::Duration kKillWithin = absl::Seconds(10);  // the time after which KillDescendants gives up

// While a Subreaper lives, every orphan among the descendants of this process becomes a child of this process.
class Subreaper {
 public:
  Subreaper() {
    ::prctl(PR_GET_CHILD_SUBREAPER, &before_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~Subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, before_); }
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;

 private:
  int before_ = 0;
};

// Two connected sockets, close-on-exec, that keep the bounds of messages.
struct SocketPair {
  int ends[2] = {-1, -1};
  bool Open() { return ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0; }
  void Close(int end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
  ~SocketPair() {
    Close(0);
    Close(1);
  }
};

// The parent of `process`; 0 when `process` has ended meanwhile. /proc/N/stat is "N (name) state parent …", and a name
// may hold parentheses.
pid_t ParentOf(absl::string_view process) {
  std::ifstream file(absl::StrCat("/proc/", process, "/stat"));
  std::ostringstream text;
  text << file.rdbuf();  // reads nothing when the process ends meanwhile, where an iterator of the file would throw
  const std::string stat = text.str();
  const std::size_t name_end = stat.rfind(')');
  int parent = 0;
  char state = 0;
  if (name_end != stat.npos) (void)std::sscanf(stat.c_str() + name_end + 1, " %c %d", &state, &parent);
  return parent;
}

std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> processes(::opendir("/proc"), ::closedir);
  if (processes == nullptr) return children;
  while (const dirent* entry = ::readdir(processes.get())) {
    pid_t process = 0;
    if (absl::SimpleAtoi(entry->d_name, &process) && ParentOf(entry->d_name) == ::getpid()) {
      children.push_back(process);
    }
  }
  return children;
}

// A result is one message: the status code, the exit code, and the text of the error.
constexpr std::size_t kMaxMessage = 64 << 10;

void SendResult(int socket, const absl::StatusOr<int>& result) {
  const std::string text = absl::StrCat(result.status().raw_code(), " ", result.ok() ? *result : 0, " ",
                                        result.status().message().substr(0, kMaxMessage / 2));
  (void)::send(socket, text.data(), text.size(), MSG_NOSIGNAL);  // fails when the front has died
}

std::optional<absl::StatusOr<int>> ReceiveResult(int socket) {
  std::string text(kMaxMessage, '\0');
  const ssize_t got = ::recv(socket, text.data(), text.size(), MSG_DONTWAIT);
  if (got <= 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(got));
  int status = 0, code = 0, message = 0;
  if (std::sscanf(text.c_str(), "%d %d%n", &status, &code, &message) != 2) return std::nullopt;
  if (status == 0) return code;
  return absl::Status(static_cast<absl::StatusCode>(status), text.substr(static_cast<std::size_t>(message) + 1));
}

// Passes signals on to `child` until the child has ended; returns its wait status.
int WaitAndPassOn(const HandledSignals& signals, pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    pollfd wait{signals.fd(), POLLIN, 0};
    ::poll(&wait, 1, -1);
    while (const int signal = signals.Next()) {
      if (signal != SIGCHLD) ::kill(child, signal);
    }
  }
  return status;
}

}  // namespace

absl::StatusOr<int> RunSupervised(const HandledSignals& signals,
                                  absl::FunctionRef<absl::StatusOr<int>(int front)> supervise) {
  SocketPair sockets;
  if (signals.fd() < 0 || !sockets.Open()) return Refused("cannot make a descriptor");
  const Subreaper subreaper;
  const pid_t child = ::fork();
  if (child < 0) return Refused("cannot start a process");
  if (child == 0) {
    sockets.Close(0);
    ::setpgid(0, 0);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // a child does not inherit this setting
    SendResult(sockets.ends[1], supervise(sockets.ends[1]));
    ::_exit(0);
  }
  sockets.Close(1);
  const int status = WaitAndPassOn(signals, child);
  if (const std::optional<absl::StatusOr<int>> result = ReceiveResult(sockets.ends[0])) return *result;
  KillDescendants(signals);
  std::fprintf(stderr, "tutti launch: the process that supervised the ranks %s; the ranks are killed\n",
               DescribeEnd(status).c_str());
  return std::max(ExitCodeOf(status), 1);
}

void KillDescendants(const HandledSignals& signals) {
  const std::int64_t end_ns = NanosIn(kKillWithin);
  for (absl::Duration left = kKillWithin; left > absl::ZeroDuration(); left = LeftUntil(end_ns)) {
    while (signals.Next() != 0) {  // taken before Children: a later SIGCHLD then ends the poll
    }
    // Only children are killed: the process id of a child cannot become another process's before waitpid below.
    for (const pid_t child : Children()) ::kill(child, SIGKILL);
    int reaped = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(-1, nullptr, WNOHANG)) > 0) ++reaped;
    if (ended < 0) return;  // no child is left
    if (reaped > 0) continue;
    pollfd wait{signals.fd(), POLLIN, 0};
    ::poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
  }
}

}  // namespace tutti
