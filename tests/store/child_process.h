// A forked process for a test, which reads its lines from a pipe and waits for its end.
#ifndef TUTTI_TESTS_STORE_CHILD_PROCESS_H_
#define TUTTI_TESTS_STORE_CHILD_PROCESS_H_

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace tutti {

class ChildProcess {
 public:
  using Say = std::function<void(const std::string& line)>;

  // Runs `body` in a process of its own, which ends when `body` returns, or after a minute.
  explicit ChildProcess(const std::function<void(const Say& say)>& body) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::alarm(60);
      ::close(ends[0]);
      body([fd = ends[1]](const std::string& line) {
        const std::string text = line + "\n";
        if (::write(fd, text.data(), text.size()) < 0) ::_exit(1);
      });
      ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    ::close(ends[1]);
    said_ = UniqueFd(ends[0]);
  }
  ~ChildProcess() {
    Signal(SIGKILL);
    Wait();
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The next line of the process; "" when the process has ended.
  std::string NextLine() {
    std::string line;
    for (char c = 0; ::read(said_.get(), &c, 1) == 1 && c != '\n';) line.push_back(c);
    return line;
  }

  void Signal(int signal) {
    if (pid_ > 0) ::kill(pid_, signal);
  }

  // Returns when the process has stopped.
  void Stop() {
    Signal(SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }

  // Waits for the end of the process and returns its status, as of waitpid.
  int Wait() {
    int status = -1;
    if (pid_ > 0) ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd said_;
};

// Starts a program that outlives this process and inherits its descriptors, except those that are close-on-exec;
// returns the program's process id when the program runs. fork() is not used, because its handlers close descriptors,
// too.
inline pid_t StartHelper() {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const char* arguments[] = {"sh", "-c", "echo; exec sleep 60", nullptr};
  pid_t pid = -1;
  EXPECT_EQ(::posix_spawnp(&pid, "sh", &actions, nullptr, const_cast<char**>(arguments), environ), 0);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  char started = 0;
  EXPECT_EQ(::read(ends[0], &started, 1), 1);
  ::close(ends[0]);
  return pid;
}

}  // namespace tutti

#endif  // TUTTI_TESTS_STORE_CHILD_PROCESS_H_
