#include "tests/harness/traced_ranks.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tutti {
namespace {

// Numbers of no system call: the kernel refuses these, and the tracer sees them.
constexpr std::int64_t kFirstMark = 1'000'000;

enum class Moves : std::uint8_t { kNothing, kSends, kReceives };

struct Known {
  std::int64_t number;
  const char* name;
  Moves moves = Moves::kNothing;
};

constexpr Known kKnown[] = {
    {SYS_read, "read", Moves::kReceives},
    {SYS_readv, "readv", Moves::kReceives},
    {SYS_recvfrom, "recvfrom", Moves::kReceives},
    {SYS_recvmsg, "recvmsg", Moves::kReceives},
    {SYS_write, "write", Moves::kSends},
    {SYS_writev, "writev", Moves::kSends},
    {SYS_sendto, "sendto", Moves::kSends},
    {SYS_sendmsg, "sendmsg", Moves::kSends},
    {SYS_ppoll, "ppoll"},
    {SYS_epoll_pwait, "epoll_wait"},
    {SYS_sched_yield, "sched_yield"},
    {SYS_setsockopt, "setsockopt"},
    {SYS_clock_gettime, "clock_gettime"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_restart_syscall, "restart_syscall"},
#ifdef SYS_epoll_wait
    {SYS_epoll_wait, "epoll_wait"},
#endif
#ifdef SYS_poll
    {SYS_poll, "poll"},
#endif
};

const Known* Find(std::int64_t number) {
  const auto* const found =
      std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& known) { return known.number == number; });
  return found == std::end(kKnown) ? nullptr : found;
}

std::string NameOf(std::int64_t number, std::uint64_t futex_operation) {
  if (number == SYS_futex) {
    const bool wakes = (futex_operation & FUTEX_CMD_MASK) == FUTEX_WAKE;
    return wakes ? "futex wake" : "futex wait";
  }
  const Known* const known = Find(number);
  return known != nullptr ? known->name : absl::StrCat("system call ", number);
}

// A thread that has been killed meanwhile is not resumed, and waitpid tells of it.
void Resume(pid_t thread, int signal) {
  ptrace(PTRACE_SYSCALL, thread, nullptr, reinterpret_cast<void*>(static_cast<std::intptr_t>(signal)));
}

}  // namespace

std::string SystemCalls::ToString() const {
  std::string text = absl::StrCat("sent ", bytes_sent, ", received ", bytes_received, " bytes");
  for (const auto& [name, count] : calls) absl::StrAppend(&text, ", ", name, " ", count);
  return text;
}

void BeginPhase(int phase) { syscall(kFirstMark + phase); }

absl::StatusOr<TracedRanks> TracedRanks::Attach(std::vector<pid_t> ranks) {
  TracedRanks traced;
  traced.ranks_ = std::move(ranks);
  traced.phases_.resize(traced.ranks_.size(), kNotCounted);
  for (std::size_t rank = 0; rank < traced.ranks_.size(); ++rank) {
    const std::string tasks = absl::StrCat("/proc/", traced.ranks_[rank], "/task");
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      const pid_t thread = std::stoi(task.path().filename());
      constexpr std::intptr_t kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
      if (ptrace(PTRACE_SEIZE, thread, nullptr, reinterpret_cast<void*>(kOptions)) != 0 ||
          ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0) {
        return absl::ErrnoToStatus(errno, "ptrace");
      }
      traced.threads_[thread].rank = static_cast<Rank>(rank);
    }
  }
  return traced;
}

TracedRanks::Thread& TracedRanks::ThreadOf(pid_t thread) {
  const auto [found, is_new] = threads_.try_emplace(thread);
  for (std::size_t rank = 0; is_new && rank < ranks_.size(); ++rank) {
    const std::string task = absl::StrCat("/proc/", ranks_[rank], "/task/", thread);
    if (std::filesystem::exists(task)) found->second.rank = static_cast<Rank>(rank);
  }
  return found->second;
}

bool TracedRanks::HandleCall(pid_t thread) {
  Thread& state = ThreadOf(thread);
  __ptrace_syscall_info info = {};
  if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info) < 0) return true;
  int& phase = phases_[static_cast<std::size_t>(state.rank)];
  if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
    state.in_call = true;
    state.number = static_cast<std::int64_t>(info.entry.nr);
    if (state.number >= kFirstMark) {
      phase = static_cast<int>(state.number - kFirstMark);
      state.phase = kNotCounted;
      return phase != kEnd;
    }
    state.phase = phase;
    if (phase >= kFirstPhase) ++counts_[{state.rank, phase}].calls[NameOf(state.number, info.entry.args[1])];
  } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && std::exchange(state.in_call, false)) {
    const Known* const known = Find(state.number);
    if (known == nullptr || state.phase < kFirstPhase || info.exit.is_error) return true;
    SystemCalls& counts = counts_[{state.rank, state.phase}];
    if (known->moves == Moves::kSends) counts.bytes_sent += info.exit.rval;
    if (known->moves == Moves::kReceives) counts.bytes_received += info.exit.rval;
  }
  return true;
}

absl::Status TracedRanks::TraceUntilEnd() {
  const auto has_ended = [](int phase) { return phase == kEnd; };
  while (!std::all_of(phases_.begin(), phases_.end(), has_ended)) {
    int status = 0;
    const pid_t thread = waitpid(-1, &status, __WALL);
    if (thread < 0) return absl::ErrnoToStatus(errno, "waitpid");
    if (!WIFSTOPPED(status)) {
      const auto rank = std::find(ranks_.begin(), ranks_.end(), thread);
      if (rank != ranks_.end()) {
        return absl::UnavailableError(absl::StrCat("rank ", rank - ranks_.begin(), " has ended"));
      }
      threads_.erase(thread);
      continue;
    }
    const int signal = WSTOPSIG(status);
    const bool is_call = signal == (SIGTRAP | 0x80);
    if (is_call && !HandleCall(thread)) continue;
    const bool is_event = status >> 16 != 0;
    Resume(thread, is_call || is_event ? 0 : signal);
  }
  return absl::OkStatus();
}

void TracedRanks::Kill() {
  for (const pid_t rank : ranks_) kill(rank, SIGKILL);
  for (const auto& [thread, state] : threads_) {
    const bool is_rank = std::find(ranks_.begin(), ranks_.end(), thread) != ranks_.end();
    int status = 0;
    while (!is_rank && waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status)) {
    }
  }
}

}  // namespace tutti
