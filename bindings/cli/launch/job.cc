#include "bindings/cli/launch/job.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "bindings/cli/launch/supervision.h"

namespace tutti {
namespace {

bool SameFile(int a, int b) {
  struct stat of_a, of_b;
  return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

// Milliseconds for poll to wait until `until_ns`; -1: for ever.
int PollTimeout(std::int64_t until_ns) {
  if (until_ns == kNeverNanos) return -1;
  const std::int64_t left = absl::ToInt64Milliseconds(LeftUntil(until_ns)) + 1;
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

}  // namespace

Job::Job(const LaunchOptions& options, const HandledSignals& signals, int front, TcpStoreServer& store)
    : options_(options),
      signals_(signals),
      front_(front),
      store_(store),
      out_(STDOUT_FILENO),
      own_err_(STDERR_FILENO),
      err_(SameFile(STDOUT_FILENO, STDERR_FILENO) ? out_ : own_err_) {}

Job::~Job() {
  if (running_ > 0 || first_failure_) KillDescendants(signals_);
  for (Stream& stream : streams_) CloseStream(stream);
}

absl::Status Job::Start(const ProcessTemplate& common) {
  for (Rank local_rank = 0; local_rank < options_.ranks && !kill_at_ns_ && !front_died_; ++local_rank) {
    absl::StatusOr<RankProcess> process = StartRank(common, local_rank);
    if (!process.ok()) return process.status();
    ++running_;
    ranks_.push_back(*process);
    if (process->out >= 0) Follow(process->rank, process->out, out_);
    if (process->err >= 0) Follow(process->rank, process->err, err_);
    Step(0);
  }
  return absl::OkStatus();
}

int Job::Run() {
  while (running_ > 0 && !front_died_) Step(kill_at_ns_.value_or(kNeverNanos));
  // Ranks that a signal has told to end may end with 0: a job that was cut short must not look like one that is done.
  if (!ending_.empty() && !first_failure_) first_failure_ = 128 + ending_.front();
  // When the job fails, the processes that ranks have started are killed, too.
  if (front_died_ || first_failure_) KillDescendants(signals_);
  running_ = 0;
  if (front_died_) return 128 + SIGKILL;
  DeliverWhatIsLeft();
  return first_failure_.value_or(output_lost_ ? 1 : 0);
}

void Job::Follow(Rank rank, int from, Outlet& to) {
  streams_.push_back({from, &to, LineTagger(rank, [&to](absl::string_view line) { to.Add(line); })});
}

void Job::Step(std::int64_t until_ns) {
  // poll passes over negative descriptors.
  std::vector<pollfd> polls = {{signals_.fd(), POLLIN, 0}, {front_, POLLIN, 0}};
  for (const Outlet* outlet : {&out_, &own_err_}) {
    polls.push_back({outlet->waiting() > 0 ? outlet->fd() : -1, POLLOUT, 0});
  }
  const std::size_t first_stream = polls.size();
  for (const Stream& stream : streams_) polls.push_back({stream.to->waiting() == 0 ? stream.fd : -1, POLLIN, 0});
  ::poll(polls.data(), polls.size(), PollTimeout(until_ns));
  front_died_ = front_died_ || polls[1].revents != 0;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (polls[first_stream + i].revents != 0) Copy(streams_[i]);
  }
  PassOnSignals();
  Reap();
  KillTheLate();
  WriteOut(out_);
  WriteOut(own_err_);
}

void Job::PassOnSignals() {
  while (const int signal = signals_.Next()) {
    if (signal == SIGCHLD) continue;
    SignalAll(signal);
    if (signal == SIGUSR1 || signal == SIGUSR2) continue;
    ending_.push_back(signal);
    EndBy(NanosIn(options_.grace));
  }
}

// Waits for ended ranks, and for orphans of ranks, which become children of this process.
void Job::Reap() {
  int status = 0;
  for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto process =
        std::find_if(ranks_.begin(), ranks_.end(), [ended](const RankProcess& rank) { return rank.id == ended; });
    if (process != ranks_.end()) Ended(*process, status);
  }
}

void Job::Ended(RankProcess& process, int wait_status) {
  process.id = -1;
  --running_;
  store_.RankHasEnded(process.rank);
  const int code = ExitCodeOf(wait_status);
  const bool are_told = !ending_.empty();  // the ranks, to end
  const bool as_told = absl::c_any_of(ending_, [code](int signal) { return code == 128 + signal; });
  if (code == 0 || first_failure_ || as_told) return;
  first_failure_ = code;
  const bool alone = running_ == 0 && std::ssize(ranks_) == options_.ranks;
  Report(absl::StrCat("rank ", process.rank, " ", DescribeEnd(wait_status),
                      alone || are_told ? "" : "; ending the others"));
  // Ranks that a signal has told to end may be writing a checkpoint, which a second signal would cut short.
  if (are_told) return;
  SignalAll(SIGTERM);
  EndBy(NanosIn(options_.grace));
}

void Job::KillTheLate() {
  if (!kill_at_ns_ || MonotonicNanos() < *kill_at_ns_ || running_ == 0) return;
  std::string late;
  for (const RankProcess& process : ranks_) {
    if (process.id >= 0) absl::StrAppend(&late, late.empty() ? "" : ", ", process.rank);
  }
  Report(absl::StrCat("killing the ranks that did not end within ", absl::FormatDuration(options_.grace), ": ", late));
  SignalAll(SIGKILL);
  if (!ending_.empty()) ending_.push_back(SIGKILL);
  kill_at_ns_ = kNeverNanos;
}

void Job::Copy(Stream& stream) {
  std::array<char, 16 << 10> buffer;
  const ssize_t got = ::read(stream.fd, buffer.data(), std::min(buffer.size(), stream.left));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return CloseStream(stream);
  stream.left -= static_cast<std::size_t>(got);
  stream.tagger.Add({buffer.data(), static_cast<std::size_t>(got)});
  if (stream.left == 0) CloseStream(stream);
}

void Job::CloseStream(Stream& stream) {
  if (stream.fd < 0) return;
  stream.tagger.Finish();
  ::close(std::exchange(stream.fd, -1));
}

void Job::WriteOut(Outlet& outlet) {
  if (outlet.waiting() == 0) return;
  if (outlet.Write()) last_written_ns_ = MonotonicNanos();
  if (outlet.error() == 0) return;
  output_lost_ = true;
  const bool is_out = &outlet == &out_;
  if (outlet.error() == EPIPE) {
    // Nobody reads the launcher's output, so the ranks' ends are closed: a rank that writes gets SIGPIPE, as without
    // tags.
    for (Stream& stream : streams_) {
      if (stream.to == &outlet) CloseStream(stream);
    }
  }
  Report(absl::StrCat("cannot write to standard ", is_out ? "output" : "error", ": ", std::strerror(outlet.error()),
                      "; what ranks write there is lost"));
}

void Job::DeliverWhatIsLeft() {
  // Reads only the bytes that are in the pipes now: a process that a rank left behind may write on without end.
  for (Stream& stream : streams_) {
    int left = 0;
    if (stream.fd < 0) continue;
    if (::ioctl(stream.fd, FIONREAD, &left) != 0 || left <= 0) {
      CloseStream(stream);
    } else {
      stream.left = static_cast<std::size_t>(left);
    }
  }
  const auto open = [](const Stream& stream) { return stream.fd >= 0; };
  last_written_ns_ = MonotonicNanos();
  while (!front_died_ && (waiting() > 0 || std::any_of(streams_.begin(), streams_.end(), open))) {
    const bool ends = first_failure_.has_value() || kill_at_ns_.has_value();
    const std::int64_t until_ns = ends ? NanosAfter(last_written_ns_, options_.reader_patience) : kNeverNanos;
    if (MonotonicNanos() >= until_ns) break;
    Step(until_ns);
  }
  if (waiting() == 0) return;
  output_lost_ = true;
  Report(absl::StrCat("output of the ranks is lost: nobody read it within ",
                      absl::FormatDuration(options_.reader_patience)));
  WriteOut(own_err_);
}

void Job::Report(absl::string_view text) { err_.Add(absl::StrCat("tutti launch: ", text, "\n")); }

void Job::EndBy(std::int64_t end_ns) { kill_at_ns_ = std::min(end_ns, kill_at_ns_.value_or(end_ns)); }

void Job::SignalAll(int signal) {
  for (const RankProcess& process : ranks_) {
    if (process.id >= 0) ::kill(-process.id, signal);
  }
}

}  // namespace tutti
