#include "bindings/cli/launch.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bindings/cli/launch_output.h"
#include "bindings/cli/launch_process.h"
#include "tutti/bootstrap.h"
#include "tutti/store.h"

namespace tutti {
namespace {

void Report(absl::string_view text) { WriteFully(STDERR_FILENO, absl::StrCat("tutti launch: ", text, "\n")); }

// The signals that the launcher reads from a descriptor instead of being interrupted by them.
class HandledSignals {
 public:
  HandledSignals() {
    ::sigemptyset(&handled_);
    for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&handled_, signal);
    ::pthread_sigmask(SIG_BLOCK, &handled_, &before_);
    fd_ = ::signalfd(-1, &handled_, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~HandledSignals() {
    ::close(fd_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HandledSignals(const HandledSignals&) = delete;
  HandledSignals& operator=(const HandledSignals&) = delete;

  int fd() const { return fd_; }
  const sigset_t& before() const { return before_; }
  // 0 when there is none.
  int Next() const {
    signalfd_siginfo info;
    return ::read(fd_, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t handled_;
  sigset_t before_;
  int fd_;
};

// A file without a name that holds the secret; the ranks inherit it.
class SecretFile {
 public:
  explicit SecretFile(const JobSecret& secret) : fd_(::memfd_create("tutti-job-secret", 0)) {
    WriteFully(fd_, ToHex(secret));
  }
  ~SecretFile() { ::close(fd_); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

struct Stream {
  int fd = -1;
  LineTagger tagger;
};

// The ranks while they run.
class Job {
 public:
  Job(const LaunchOptions& options, const HandledSignals& signals) : options_(options), signals_(signals) {}
  ~Job() {
    first_failure_ = first_failure_.value_or(1);  // whoever is killed here has not failed
    SignalAll(SIGKILL);
    while (running_ > 0) Reap(0);
    for (const Stream& stream : streams_) ::close(stream.fd);
  }

  absl::Status Start(const ProcessTemplate& common) {
    for (Rank rank = 0; rank < options_.ranks; ++rank) {
      absl::StatusOr<RankProcess> process = StartRank(common, rank);
      if (!process.ok()) return process.status();
      ++running_;
      ranks_.push_back(*process);
      if (process->out >= 0) Follow(rank, process->out, STDOUT_FILENO);
      if (process->err >= 0) Follow(rank, process->err, STDERR_FILENO);
    }
    return absl::OkStatus();
  }

  int Run() {
    while (running_ > 0) Step();
    // What the last ones wrote; not what a process that they left behind may still write.
    for (Stream& stream : streams_) {
      while (Copy(stream)) {
      }
      stream.tagger.Finish();
    }
    return first_failure_.value_or(0);
  }

 private:
  void Follow(Rank rank, int from, int to) {
    streams_.push_back({from, LineTagger(rank, [to](absl::string_view line) { WriteFully(to, line); })});
  }

  void Step() {
    std::vector<pollfd> polls = {{signals_.fd(), POLLIN, 0}};
    for (const Stream& stream : streams_) polls.push_back({stream.fd, POLLIN, 0});
    int timeout_ms = -1;
    if (kill_at_.has_value()) {
      const absl::Duration left = std::min(*kill_at_ - absl::Now(), absl::Hours(1));  // the end of time does not fit
      timeout_ms = static_cast<int>(std::max<std::int64_t>(absl::ToInt64Milliseconds(left) + 1, 0));
    }
    ::poll(polls.data(), polls.size(), timeout_ms);
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (polls[i + 1].revents != 0 && !Copy(streams_[i]) && (polls[i + 1].revents & POLLHUP) != 0) {
        ::close(std::exchange(streams_[i].fd, -1));  // poll passes over it from now on
      }
    }
    while (const int signal = signals_.Next()) {
      if (signal == SIGCHLD) continue;
      SignalAll(signal);
      EndBy(absl::Now() + options_.grace);
    }
    Reap(WNOHANG);
    if (kill_at_ && absl::Now() >= *kill_at_ && running_ > 0) {
      std::string late;
      for (const RankProcess& process : ranks_) {
        if (process.id >= 0) absl::StrAppend(&late, late.empty() ? "" : ", ", process.rank);
      }
      Report(
          absl::StrCat("killing the ranks that did not end within ", absl::FormatDuration(options_.grace), ": ", late));
      SignalAll(SIGKILL);
      kill_at_ = absl::InfiniteFuture();
    }
  }

  // False at the end of the stream, and when there is nothing to read.
  bool Copy(Stream& stream) {
    std::array<char, 16 << 10> buffer;
    const ssize_t got = ::read(stream.fd, buffer.data(), buffer.size());
    if (got > 0) stream.tagger.Add({buffer.data(), static_cast<std::size_t>(got)});
    return got > 0;
  }

  void Reap(int flags) {
    for (RankProcess& process : ranks_) {
      int status = 0;
      if (process.id < 0 || ::waitpid(process.id, &status, flags) != process.id) continue;
      const pid_t group = std::exchange(process.id, -1);
      --running_;
      if (ExitCodeOf(status) != 0 && !first_failure_) {
        first_failure_ = ExitCodeOf(status);
        Report(
            absl::StrCat("rank ", process.rank, " ", DescribeEnd(status), running_ > 0 ? "; ending the others" : ""));
        SignalAll(SIGTERM);
        EndBy(absl::Now() + options_.grace);
      }
      // What a rank has started itself ends with a job that failed.
      if (first_failure_) ::kill(-group, SIGKILL);
    }
  }

  void EndBy(absl::Time time) { kill_at_ = std::min(time, kill_at_.value_or(time)); }

  void SignalAll(int signal) {
    for (const RankProcess& process : ranks_) {
      if (process.id >= 0) ::kill(-process.id, signal);
    }
  }

  const LaunchOptions& options_;
  const HandledSignals& signals_;
  std::vector<RankProcess> ranks_;
  std::deque<Stream> streams_;
  int running_ = 0;
  std::optional<int> first_failure_;
  std::optional<absl::Time> kill_at_;
};

}  // namespace

absl::StatusOr<int> Launch(const LaunchOptions& options) {
  if (options.ranks < 1) {
    return absl::InvalidArgumentError(absl::StrCat("tutti launch: ranks=", options.ranks, ", must be at least 1"));
  }
  if (options.command.empty() || options.command[0].empty()) {
    return absl::InvalidArgumentError("tutti launch: no program given");
  }
  const HandledSignals signals;  // before the server's thread, which then leaves them to us

  const JobSecret secret = RandomJobSecret();
  const SecretFile secret_file(secret);
  if (secret_file.fd() < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("tutti launch: cannot make the secret's file: ", std::strerror(errno)));
  }
  const Identity identity{.size = options.ranks,
                          .job_id = absl::StrCat("launch ", ::getpid(), " ", ToHex(RandomJobSecret()).substr(0, 8))};
  absl::StatusOr<std::unique_ptr<TcpStoreServer>> server = TcpStoreServer::Start(StoreKey(identity, secret));
  if (!server.ok()) return server.status();

  ProcessTemplate common{options.command,
                         RankEnvironment(options.ranks, identity.job_id, (*server)->address(), secret_file.fd()),
                         secret_file.fd(), signals.before(), options.tag_output};
  Job job(options, signals);
  if (absl::Status status = job.Start(common); !status.ok()) return status;
  return job.Run();
}

}  // namespace tutti
