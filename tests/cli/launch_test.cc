#include "bindings/cli/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bindings/cli/launch_output.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/store/temporary_directory.h"
#include "tutti/bootstrap.h"

namespace tutti {
namespace {

using testing::HasSubstr;

// The launcher as a program: it is this one, started again. Its ranks run $LAUNCH_SCRIPT.
TEST(DISABLED_LaunchProgram, Launcher) {
  LaunchOptions options{.command = {"sh", "-c", std::getenv("LAUNCH_SCRIPT")}};
  ASSERT_TRUE(absl::SimpleAtoi(std::getenv("LAUNCH_RANKS"), &options.ranks));
  options.tag_output = std::getenv("LAUNCH_TAGS") != nullptr;
  if (std::getenv("LAUNCH_IMPATIENT") != nullptr) options.grace = absl::Milliseconds(50);
  absl::StatusOr<int> code = Launch(options);
  if (!code.ok()) std::fprintf(stderr, "%s\n", code.status().ToString().c_str());
  std::_Exit(code.ok() ? *code : 99);
}

TEST(DISABLED_LaunchProgram, Rank) {
  absl::StatusOr<Bootstrap> job = BootstrapFromEnvironment(absl::Seconds(60));
  ASSERT_TRUE(job.ok()) << job.status();
  const Identity& self = job->identity;
  auto ranks = ExchangeBlobs(*job->store, "x", self.rank, self.size, "", absl::Now() + absl::Seconds(60));
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  std::fprintf(stderr, "<%s met %d>\n", self.launcher.c_str(), static_cast<int>(ranks->size()));
}

std::string Myself(const std::string& test) {
  return absl::StrCat(std::filesystem::read_symlink("/proc/self/exe").string(),
                      " --gtest_also_run_disabled_tests --gtest_brief=1 --gtest_filter=DISABLED_LaunchProgram.", test);
}

// A launcher at work; `text` is what it and its ranks have written, to either stream.
class Launcher {
 public:
  Launcher(int ranks, const std::string& script, const std::vector<std::string>& settings = {}) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    std::vector<std::string> environment = {absl::StrCat("LAUNCH_RANKS=", ranks), "LAUNCH_SCRIPT=" + script};
    environment.insert(environment.end(), settings.begin(), settings.end());
    const std::string command = "exec " + Myself("Launcher");
    id_ = ::fork();
    if (id_ == 0) {
      for (std::string& setting : environment) ::putenv(setting.data());
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(126);
    }
    ::close(ends[1]);
    output_ = ends[0];
  }
  ~Launcher() { ::close(output_); }

  void Signal(int signal) { EXPECT_EQ(::kill(id_, signal), 0); }

  void ReadUntil(const std::string& word, int times) {
    while (Count(word) < times) ASSERT_TRUE(Read()) << text;
  }
  // To the end, which comes when nobody is left that could write.
  int Finish() {
    while (Read()) {
    }
    int status = 0;
    EXPECT_EQ(::waitpid(id_, &status, 0), id_);
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
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(output_, buffer.data(), buffer.size());
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
    return got > 0;
  }

  pid_t id_ = -1;
  int output_ = -1;
};

// Keeps a shell waiting, and its traps prompt.
constexpr char kForever[] = "sleep 1000 & wait";

TEST(LaunchTest, RanksKnowWhoTheyAre) {
  Launcher launcher(3, "echo r$TUTTI_RANK/$TUTTI_SIZE l$TUTTI_LOCAL_RANK/$TUTTI_LOCAL_SIZE");
  EXPECT_EQ(launcher.Finish(), 0) << launcher.text;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(launcher.text, HasSubstr(absl::StrCat("r", rank, "/3 l", rank, "/3\n")));
  }
}

TEST(LaunchTest, RanksMeetInTheLaunchersStore) {
  Launcher launcher(3, Myself("Rank"));
  EXPECT_EQ(launcher.Finish(), 0) << launcher.text;
  EXPECT_EQ(launcher.Count("<tutti met 3>"), 3) << launcher.text;
}

TEST(LaunchTest, TheSecretIsNeitherInTheEnvironmentNorOnACommandLine) {
  const std::string inherited(64, 'a');
  Launcher launcher(1,
                    "fd=/proc/self/fd/$TUTTI_JOB_SECRET_FD; echo length $(cat $fd | wc -c); "
                    "tr '\\0' '\\n' < /proc/self/environ | grep -c -f $fd; env | grep -c '^TUTTI_JOB_SECRET='; "
                    "cat /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c -f $fd; exit 0",
                    {"TUTTI_JOB_SECRET=" + inherited});
  EXPECT_EQ(launcher.Finish(), 0);
  EXPECT_THAT(launcher.text, HasSubstr("length 64\n0\n0\n0\n"));
}

TEST(LaunchTest, TheFirstFailureEndsAllAndIsReported) {
  Launcher launcher(3, absl::StrCat("if [ $TUTTI_RANK = 1 ]; then exit 7; fi; ", kForever));
  EXPECT_EQ(launcher.Finish(), 7);
  EXPECT_THAT(launcher.text, HasSubstr("tutti launch: rank 1 exited with code 7; ending the others\n"));
  EXPECT_EQ(launcher.Count("tutti launch:"), 1) << launcher.text;
}

TEST(LaunchTest, ASignalIsNamed) {
  Launcher launcher(2, absl::StrCat("if [ $TUTTI_RANK = 0 ]; then kill -SEGV $$; fi; ", kForever));
  EXPECT_EQ(launcher.Finish(), 128 + SIGSEGV);
  EXPECT_THAT(launcher.text, HasSubstr("rank 0 was ended by SIGSEGV; ending the others\n"));
}

TEST(LaunchTest, RanksThatDoNotEndAreKilled) {
  TemporaryDirectory directory;
  const std::string fifo = directory.path() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  Launcher launcher(2,
                    "if [ $TUTTI_RANK = 0 ]; then trap '' TERM; echo ready > $FIFO; while :; do sleep 1000; done; fi; "
                    "read word < $FIFO; exit 4",
                    {"LAUNCH_IMPATIENT=1", "FIFO=" + fifo});
  EXPECT_EQ(launcher.Finish(), 4);
  EXPECT_THAT(launcher.text, HasSubstr("rank 1 exited with code 4"));
  EXPECT_THAT(launcher.text, HasSubstr("killing the ranks that did not end within 50ms: 0\n"));
}

// A rank that is ending already may be told so once more, when the launcher sees the other one end.
TEST(LaunchTest, SignalsArePassedOn) {
  for (int signal : {SIGTERM, SIGINT}) {
    Launcher launcher(2,
                      absl::StrCat("trap 'trap \"\" TERM INT; echo trapped; exit 5' TERM INT; echo ready; ", kForever));
    launcher.ReadUntil("ready", 2);
    launcher.Signal(signal);
    EXPECT_EQ(launcher.Finish(), 5);
    EXPECT_EQ(launcher.Count("trapped"), 2) << launcher.text;
  }
}

TEST(LaunchTest, RanksDieWithTheLauncher) {
  Launcher launcher(2, "echo ready; exec sleep 1000");
  launcher.ReadUntil("ready", 2);
  launcher.Signal(SIGKILL);
  EXPECT_EQ(launcher.Finish(), -SIGKILL);  // Finish returns when no rank holds the pipe any more
}

TEST(LaunchTest, WhatRanksHaveStartedEndsWithAJobThatFailed) {
  Launcher launcher(2,
                    "if [ $TUTTI_RANK = 0 ]; then sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' & wait; fi; exit 3");
  EXPECT_EQ(launcher.Finish(), 3);
}

TEST(LaunchTest, LinesAreTagged) {
  Launcher launcher(2, "echo out; echo err >&2; printf unfinished", {"LAUNCH_TAGS=1"});
  EXPECT_EQ(launcher.Finish(), 0);
  for (const char* line :
       {"[0] out\n", "[0] err\n", "[0] unfinished\n", "[1] out\n", "[1] err\n", "[1] unfinished\n"}) {
    EXPECT_THAT(launcher.text, HasSubstr(line));
  }
}

TEST(LaunchTest, WrongOptionsAreNamed) {
  EXPECT_EQ(Launch({.ranks = 0, .command = {"true"}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Launch({.ranks = 1, .command = {}}).status().code(), absl::StatusCode::kInvalidArgument);
  absl::Status status = Launch({.ranks = 2, .command = {"no-such-program"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot start 'no-such-program': No such file"));
}

TEST(LineTaggerTest, CutsLinesWhereverTheBytesAreCut) {
  std::string written;
  LineTagger tagger(12, [&](absl::string_view line) { absl::StrAppend(&written, line); });
  for (absl::string_view bytes : {"a", "b\nc", "\n\n10%\r20%\r", "end"}) tagger.Add(bytes);
  tagger.Finish();
  tagger.Finish();
  EXPECT_EQ(written, "[12] ab\n[12] c\n[12] \n[12] 10%\r[12] 20%\r[12] end\n");
}

TEST(LineTaggerTest, ALineWithoutEndIsCut) {
  std::size_t lines = 0;
  LineTagger tagger(0, [&](absl::string_view) { ++lines; });
  for (int i = 0; i < 100; ++i) tagger.Add(std::string(10000, 'x'));
  EXPECT_GT(lines, 10u);
}

}  // namespace
}  // namespace tutti
