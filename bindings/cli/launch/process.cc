#include "bindings/cli/launch/process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/usable_processors.h"

namespace tutti {
namespace {

// A pipe whose two ends close on exec.
struct Pipe {
  int ends[2] = {-1, -1};
  ~Pipe() {
    Close(0);
    Close(1);
  }
  bool Open() { return ::pipe2(ends, O_CLOEXEC) == 0; }
  void Close(int end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
  int ReleaseReader() {
    const int fd = ends[0];
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    ends[0] = -1;
    return fd;
  }
};

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Makes the child a rank; calls only what is safe between fork and exec in a process with threads.
[[noreturn]] void Become(const ProcessTemplate& common, Rank local_rank, pid_t launcher, char** arguments,
                         char** environment, int out, int err, int failure) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(127);  // the launcher died before prctl
  // The first rank here may read a file or a pipe. A terminal would stop the first rank, whose process group is not in
  // the foreground.
  if (local_rank != 0 || ::isatty(STDIN_FILENO)) {
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(null, STDIN_FILENO);
  }
  if (out >= 0) ::dup2(out, STDOUT_FILENO);
  if (err >= 0) ::dup2(err, STDERR_FILENO);
  // Closes on exec also descriptors that libraries have opened without close-on-exec, or that the launcher was given.
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  ::fcntl(common.secret_fd, F_SETFD, 0);
  const auto own = static_cast<std::size_t>(local_rank);
  if (!common.processors.empty() && ::sched_setaffinity(0, sizeof(cpu_set_t), &common.processors[own]) != 0) {
    const int error = -errno;  // below 0: of --bind, and not of the program
    [[maybe_unused]] const ssize_t written = ::write(failure, &error, sizeof(error));
    ::_exit(127);
  }
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &common.signals, nullptr);
  ::execvpe(arguments[0], arguments, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(failure, &error, sizeof(error));
  ::_exit(127);
}

}  // namespace

absl::Status Refused(absl::string_view what) {
  const int error = errno;
  const char* const remedy = error == EMFILE ? "; raise ulimit -n" : error == EAGAIN ? "; raise ulimit -u" : "";
  return absl::ResourceExhaustedError(absl::StrCat("tutti launch: ", what, ": ", std::strerror(error), remedy));
}

std::map<std::string, std::string> RankEnvironment(int ranks, const std::string& job_id,
                                                   const std::string& store_address, int secret_fd,
                                                   bool tells_threads) {
  std::map<std::string, std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != text.npos) result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  for (const char* name : {"TUTTI_EPOCH", "TUTTI_RENDEZVOUS", "TUTTI_JOB_SECRET", "TUTTI_JOB_SECRET_FILE"}) {
    result.erase(name);
  }
  result["TUTTI_SIZE"] = result["TUTTI_LOCAL_SIZE"] = absl::StrCat(ranks);
  result["TUTTI_JOB_ID"] = job_id;
  result["TUTTI_STORE"] = absl::StrCat("tcp://", store_address);
  result["TUTTI_JOB_SECRET_FD"] = absl::StrCat(secret_fd);
  // Otherwise numeric libraries start threads for all processors in each process, and the ranks fight over them. The
  // number decides how fast a rank computes, so the user is told.
  const int processors = UsableProcessors();
  const int threads = std::max(1, processors / ranks);
  if (result.emplace("OMP_NUM_THREADS", absl::StrCat(threads)).second && tells_threads) {
    std::fprintf(stderr,
                 "tutti launch: each of %d rank(s) has OMP_NUM_THREADS=%d, as there are %d processor(s); set "
                 "OMP_NUM_THREADS to choose otherwise\n",
                 ranks, threads, processors);
  }
  return result;
}

absl::StatusOr<RankProcess> StartRank(const ProcessTemplate& common, Rank local_rank) {
  Pipe out, err, failure;
  if (!failure.Open() || (common.tag_output && (!out.Open() || !err.Open()))) return Refused("cannot make a pipe");
  std::vector<std::string> arguments = common.command;
  std::map<std::string, std::string> variables = common.environment;
  const Rank rank = common.first_rank + local_rank;
  variables["TUTTI_RANK"] = absl::StrCat(rank);
  variables["TUTTI_LOCAL_RANK"] = absl::StrCat(local_rank);
  std::vector<std::string> environment;
  environment.reserve(variables.size());
  for (const auto& [name, value] : variables) environment.push_back(absl::StrCat(name, "=", value));
  const std::vector<char*> argument_pointers = Pointers(arguments), environment_pointers = Pointers(environment);

  const pid_t launcher = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return Refused("cannot start a process");
  if (child == 0) {
    Become(common, local_rank, launcher, const_cast<char**>(argument_pointers.data()),
           const_cast<char**>(environment_pointers.data()), out.ends[1], err.ends[1], failure.ends[1]);
  }
  ::setpgid(child, child);  // here as well, so that the group exists when we signal it
  failure.Close(1);
  int error = 0;
  ssize_t got = 0;
  while ((got = ::read(failure.ends[0], &error, sizeof(error))) < 0 && errno == EINTR) {
  }
  if (got == sizeof(error)) {
    ::waitpid(child, nullptr, 0);
    if (error < 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("launch: --bind: rank ", rank, " cannot be bound: ", std::strerror(-error)));
    }
    const std::string& program = common.command[0];
    const std::string here = "./" + program;
    const bool in_folder = error == ENOENT && program.find('/') == program.npos && ::access(here.c_str(), X_OK) == 0;
    return absl::NotFoundError(absl::StrCat("launch: cannot start '", program, "': ", std::strerror(error),
                                            in_folder ? absl::StrCat("; it is in this folder: write ", here) : ""));
  }
  RankProcess process{rank, child, -1, -1};
  if (common.tag_output) {
    process.out = out.ReleaseReader();
    process.err = err.ReleaseReader();
  }
  return process;
}

std::string DescribeEnd(int wait_status) {
  if (WIFEXITED(wait_status)) return absl::StrCat("exited with code ", WEXITSTATUS(wait_status));
  const char* name = ::sigabbrev_np(WTERMSIG(wait_status));
  return absl::StrCat("was ended by ",
                      name != nullptr ? absl::StrCat("SIG", name) : absl::StrCat("signal ", WTERMSIG(wait_status)));
}

int ExitCodeOf(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace tutti
