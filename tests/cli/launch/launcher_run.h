// Runs a launcher for a test, which sends it signals, and sees its output and how it ends.
#ifndef TUTTI_TESTS_CLI_LAUNCH_LAUNCHER_RUN_H_
#define TUTTI_TESTS_CLI_LAUNCH_LAUNCHER_RUN_H_

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tutti {

// The command line that runs one of the programs in launch_test.cc, "Launcher" or "Rank".
inline std::string ThisProgram(const std::string& name) {
  return absl::StrCat("\"", std::filesystem::read_symlink("/proc/self/exe").string(),
                      "\" --gtest_also_run_disabled_tests --gtest_brief=1 --gtest_filter=DISABLED_LaunchProgram.",
                      name);
}

// Runs `script` on every rank. The launcher's standard error is read into `text`; so is its standard output, unless the
// test brings another descriptor for that.
class Launcher {
 public:
  Launcher(int ranks, const std::string& script, const std::vector<std::string>& settings = {}, int out = -1) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    std::vector<std::string> environment = {absl::StrCat("LAUNCH_RANKS=", ranks), "LAUNCH_SCRIPT=" + script};
    environment.insert(environment.end(), settings.begin(), settings.end());
    const std::string command = "exec " + ThisProgram("Launcher");
    id_ = ::fork();
    if (id_ == 0) {
      for (std::string& setting : environment) ::putenv(setting.data());
      ::dup2(out >= 0 ? out : ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(126);
    }
    ::close(ends[1]);
    output_ = ends[0];
  }
  ~Launcher() {
    if (id_ >= 0) (void)::kill(id_, SIGKILL);  // alive only when a test has failed
    ::close(output_);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  void Signal(int signal) { EXPECT_EQ(::kill(id_, signal), 0); }

  void ReadUntil(const std::string& word, int times) {
    while (Count(word) < times) ASSERT_TRUE(Read()) << text;
  }
  // Reads to the end of the output, which comes when no process is left that could write, and returns the exit code, or
  // -N when signal N ended the launcher.
  int Finish() {
    while (Read()) {
    }
    return stuck_ ? -1 : Wait();
  }
  // Waits for the launcher alone, whatever processes are left, and returns as Finish does.
  int Wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(id_, &status, 0), id_);
    id_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int Count(const std::string& word) const {
    int count = 0;
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
    return count;
  }

  std::string text;

 private:
  bool Read() {
    constexpr int kPatienceMs = 60'000;
    pollfd readable{output_, POLLIN, 0};
    if (::poll(&readable, 1, kPatienceMs) <= 0) {
      stuck_ = true;
      ADD_FAILURE() << "a process that holds the launcher's output is left and silent; so far: " << text;
      return false;
    }
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(output_, buffer.data(), buffer.size());
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
    return got > 0;
  }

  pid_t id_ = -1;
  int output_ = -1;
  bool stuck_ = false;
};

// The process id that follows `word` in `text`, as 17 follows "<parent " in "<parent 17>". Never less than 2, because
// kill() takes smaller numbers for init or for many processes.
inline int NumberAfter(const std::string& word, const std::string& text) {
  const std::size_t at = text.find(word) + word.size();
  int number = 0;
  EXPECT_TRUE(absl::SimpleAtoi(text.substr(at, text.find('>', at) - at), &number)) << text;
  EXPECT_GT(number, 1) << text;
  return std::max(number, 2);
}

// Keeps a shell waiting in such a way that the shell's traps run at once.
inline constexpr char kForever[] = "sleep 1000 & wait";

}  // namespace tutti

#endif  // TUTTI_TESTS_CLI_LAUNCH_LAUNCHER_RUN_H_
