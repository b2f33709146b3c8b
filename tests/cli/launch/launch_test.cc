#include "bindings/cli/launch/launch.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "base/usable_processors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/launch/launcher_run.h"
#include "tests/harness/forbidden_memory_files.h"
#include "tests/harness/stopped_clock.h"
#include "tests/store/child_process.h"
#include "tests/store/temporary_directory.h"
#include "tutti/bootstrap.h"

namespace tutti {
namespace {

using testing::HasSubstr;

// The launcher as a program, which is this test program, started again. The launcher's ranks run $LAUNCH_SCRIPT.
TEST(DISABLED_LaunchProgram, Launcher) {
  LaunchOptions options{.command = {"sh", "-c", std::getenv("LAUNCH_SCRIPT")}};
  ASSERT_TRUE(absl::SimpleAtoi(std::getenv("LAUNCH_RANKS"), &options.ranks));
  options.tag_output = std::getenv("LAUNCH_TAGS") != nullptr;
  if (const char* first = std::getenv("LAUNCH_FIRST_RANK")) {
    ASSERT_TRUE(absl::SimpleAtoi(first, &options.first_rank));
  }
  if (std::getenv("LAUNCH_IMPATIENT") != nullptr) options.grace = options.reader_patience = absl::Milliseconds(50);
  std::optional<StoppedClock> stopped;
  if (std::getenv("LAUNCH_STOPPED_CLOCK") != nullptr) stopped.emplace();
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

TEST(LaunchTest, RanksKnowWhoTheyAre) {
  Launcher launcher(3, "echo r$TUTTI_RANK/$TUTTI_SIZE l$TUTTI_LOCAL_RANK/$TUTTI_LOCAL_SIZE");
  EXPECT_EQ(launcher.Finish(), 0) << launcher.text;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(launcher.text, HasSubstr(absl::StrCat("r", rank, "/3 l", rank, "/3\n")));
  }
}

// Ranks 0 to 3 of the job are other launchers'.
TEST(LaunchTest, RanksAreNamedAsInTheJobOfSeveralHosts) {
  const std::vector<std::string> tagged_after_four = {"LAUNCH_FIRST_RANK=4", "LAUNCH_TAGS=1"};
  Launcher talks(2, "echo r$TUTTI_RANK l$TUTTI_LOCAL_RANK; echo err >&2", tagged_after_four);
  EXPECT_EQ(talks.Finish(), 0) << talks.text;
  for (const char* line : {"[4] r4 l0\n", "[5] r5 l1\n", "[4] err\n", "[5] err\n"}) {
    EXPECT_THAT(talks.text, HasSubstr(line));
  }
  Launcher fails(2, absl::StrCat("if [ $TUTTI_RANK = 5 ]; then exit 7; fi; ", kForever), tagged_after_four);
  EXPECT_EQ(fails.Finish(), 7);
  EXPECT_THAT(fails.text, HasSubstr("tutti launch: rank 5 exited with code 7; ending the others\n"));
}

TEST(LaunchTest, RanksShareTheProcessorsUnlessTheUserSaysOtherwise) {
  Launcher given(2, "echo threads$OMP_NUM_THREADS", {"OMP_NUM_THREADS=7"});
  EXPECT_EQ(given.Finish(), 0);
  EXPECT_EQ(given.Count("threads7\n"), 2) << given.text;
  EXPECT_EQ(given.Count("OMP_NUM_THREADS"), 0) << given.text;
  unsetenv("OMP_NUM_THREADS");
  const int share = std::max(1, UsableProcessors() / 2);
  Launcher shared(2, absl::StrCat("[ $OMP_NUM_THREADS = ", share, " ] && echo shared of the processors"));
  EXPECT_EQ(shared.Finish(), 0);
  EXPECT_EQ(shared.Count("shared of"), 2) << shared.text;
  EXPECT_EQ(shared.Count("tutti launch: each of 2 rank(s) has OMP_NUM_THREADS="), 1) << shared.text;
}

TEST(LaunchTest, RanksMeetInTheLaunchersStore) {
  Launcher launcher(3, ThisProgram("Rank"));
  EXPECT_EQ(launcher.Finish(), 0) << launcher.text;
  EXPECT_EQ(launcher.Count("<tutti met 3>"), 3) << launcher.text;
}

// Ranks may come to the second program in another order than to the first.
TEST(LaunchTest, RanksRunOneProgramAfterAnother) {
  const std::string pause = "; sleep 0.$(((TUTTI_RANK + 1) % 3)); ";
  Launcher launcher(3, absl::StrCat(ThisProgram("Rank"), pause, ThisProgram("Rank"), " && ", ThisProgram("Rank")));
  EXPECT_EQ(launcher.Finish(), 0) << launcher.text;
  EXPECT_EQ(launcher.Count("<tutti met 3>"), 9) << launcher.text;
}

// The rank ends with 0, so the job goes on; ranks that wait for it must not wait on.
TEST(LaunchTest, ARankThatEndsWithoutHavingJoinedIsNamedToTheOthers) {
  Launcher launcher(2, "[ $TUTTI_RANK = 1 ] || exec " + ThisProgram("Rank"));
  EXPECT_EQ(launcher.Finish(), 1) << launcher.text;
  EXPECT_THAT(launcher.text, HasSubstr("UNAVAILABLE: exchange 'agreement/bootstrap' of 2 ranks: rank 1 is gone"));
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

TEST(LaunchTest, AProgramThatClosesTheSecretOnItsWayIsNamed) {
  const std::string subprocess = "exec python3 -c 'import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))' ";
  Launcher launcher(2, subprocess + ThisProgram("Rank"));
  EXPECT_EQ(launcher.Finish(), 1) << launcher.text;
  EXPECT_THAT(launcher.text, HasSubstr("TUTTI_JOB_SECRET_FD: cannot read descriptor"));
  EXPECT_THAT(launcher.text, HasSubstr("close_fds=False"));
}

TEST(LaunchTest, ASandboxThatForbidsTheSecretsFileIsNamed) {
  ChildProcess sandbox([](const auto& say) {
    const bool forbids = ForbidMemoryFiles();
    Launcher launcher(2, "true");
    launcher.Finish();
    say(forbids ? absl::StrReplaceAll(launcher.text, {{"\n", " "}}) : "no filter");
  });
  const std::string said = sandbox.NextLine();
  if (said == "no filter") GTEST_SKIP() << "the system has no seccomp";
  EXPECT_THAT(said, HasSubstr("tutti launch: cannot make the secret's file: Operation not permitted"));
}

TEST(LaunchTest, TheFirstFailureEndsAllAndIsReported) {
  Launcher launcher(3, absl::StrCat("if [ $TUTTI_RANK = 1 ]; then exit 7; fi; ", kForever));
  EXPECT_EQ(launcher.Finish(), 7);
  EXPECT_THAT(launcher.text, HasSubstr("tutti launch: rank 1 exited with code 7; ending the others\n"));
  EXPECT_EQ(launcher.Count("ending the others"), 1) << launcher.text;
}

TEST(LaunchTest, ASignalIsNamed) {
  Launcher launcher(2, absl::StrCat("if [ $TUTTI_RANK = 0 ]; then kill -SEGV $$; fi; ", kForever));
  EXPECT_EQ(launcher.Finish(), 128 + SIGSEGV);
  EXPECT_THAT(launcher.text, HasSubstr("rank 0 was ended by SIGSEGV; ending the others\n"));
}

// The kill comes in time even when somebody sets the system's clock back.
TEST(LaunchTest, RanksThatDoNotEndAreKilled) {
  TemporaryDirectory directory;
  const std::string fifo = directory.path() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  Launcher launcher(2,
                    "if [ $TUTTI_RANK = 0 ]; then trap '' TERM; echo ready > $FIFO; while :; do sleep 1000; done; fi; "
                    "read word < $FIFO; exit 4",
                    {"LAUNCH_IMPATIENT=1", "LAUNCH_STOPPED_CLOCK=1", "FIFO=" + fifo});
  EXPECT_EQ(launcher.Finish(), 4);
  EXPECT_THAT(launcher.text, HasSubstr("rank 1 exited with code 4"));
  EXPECT_THAT(launcher.text, HasSubstr("killing the ranks that did not end within 50ms: 0\n"));
}

TEST(LaunchTest, SignalsArePassedOn) {
  for (int signal : {SIGTERM, SIGINT}) {
    Launcher launcher(2, absl::StrCat("trap 'echo trapped; exit 5' TERM INT; echo ready; ", kForever));
    launcher.ReadUntil("ready", 2);
    launcher.Signal(signal);
    EXPECT_EQ(launcher.Finish(), 5);
    EXPECT_EQ(launcher.Count("trapped"), 2) << launcher.text;
  }
}

// Rank 0 still writes its checkpoint when the other rank has ended.
TEST(LaunchTest, ARankThatEndsAsASignalToldItLeavesTheOthersTheirTime) {
  const auto run = [](const std::string& save) {
    return absl::StrCat("if [ $TUTTI_RANK = 0 ]; then trap 'sleep 0.5; ", save, "' INT; fi; echo ready; ", kForever);
  };
  Launcher saves(2, run("echo saved; exit 0"));
  saves.ReadUntil("ready", 2);
  saves.Signal(SIGINT);
  EXPECT_EQ(saves.Finish(), 128 + SIGINT);
  EXPECT_EQ(saves.Count("saved"), 1) << saves.text;
  EXPECT_EQ(saves.Count("tutti launch: rank"), 0) << saves.text;
  Launcher fails(2, run("exit 5"));
  fails.ReadUntil("ready", 2);
  fails.Signal(SIGINT);
  EXPECT_EQ(fails.Finish(), 5);
  EXPECT_THAT(fails.text, HasSubstr("tutti launch: rank 0 exited with code 5\n"));
  EXPECT_EQ(fails.Count("ending the others"), 0) << fails.text;
}

// A rank that this launcher has killed, or that another signal has ended which went to all ranks, has not failed.
TEST(LaunchTest, AJobThatASignalEndsHasThatSignalsStatusWhateverEndsItsRanks) {
  const std::string deaf = absl::StrCat("if [ $TUTTI_RANK = 0 ]; then trap '' INT; fi; echo ready; ", kForever);
  Launcher killed(2, deaf, {"LAUNCH_IMPATIENT=1"});
  killed.ReadUntil("ready", 2);
  killed.Signal(SIGINT);
  EXPECT_EQ(killed.Finish(), 128 + SIGINT);
  EXPECT_EQ(killed.Count("tutti launch: killing the ranks"), 1) << killed.text;
  EXPECT_EQ(killed.Count("tutti launch: rank"), 0) << killed.text;
  Launcher told_twice(2, deaf);
  told_twice.ReadUntil("ready", 2);
  told_twice.Signal(SIGINT);
  told_twice.Signal(SIGTERM);
  EXPECT_EQ(told_twice.Finish(), 128 + SIGINT);
  EXPECT_EQ(told_twice.Count("tutti launch: rank"), 0) << told_twice.text;
}

TEST(LaunchTest, AJobThatASignalEndsDoesNotEndWellAndLeavesNothing) {
  Launcher launcher(2, absl::StrCat("trap 'exit 0' TERM; setsid sleep 1000 & echo ready; ", kForever));
  launcher.ReadUntil("ready", 2);
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Finish(), 128 + SIGTERM) << launcher.text;
}

TEST(LaunchTest, UserSignalsArePassedOnAndEndNothing) {
  Launcher launcher(2,
                    absl::StrCat("trap 'echo got1' USR1; trap 'echo got2; exit 6' USR2; echo ready; sleep 1000 & "
                                 "while :; do wait; done"),
                    {"LAUNCH_IMPATIENT=1"});
  launcher.ReadUntil("ready", 2);
  launcher.Signal(SIGUSR1);
  launcher.ReadUntil("got1", 2);
  launcher.Signal(SIGUSR2);
  EXPECT_EQ(launcher.Finish(), 6);
  EXPECT_GE(launcher.Count("got2"), 1) << launcher.text;  // the first that exits has the other one ended
}

TEST(LaunchTest, RanksInheritNoDescriptorButTheirStreamsAndTheSecret) {
  for (const char* setting : {"LAUNCH_TAGS=1", "UNTAGGED=1"}) {
    Launcher launcher(3, "exec ls -l /proc/self/fd", {setting});
    EXPECT_EQ(launcher.Finish(), 0);
    for (const char* descriptor : {" 0 -> ", " 1 -> ", " 2 -> ", "memfd:tutti-job-secret", "/fd\n"}) {
      EXPECT_EQ(launcher.Count(descriptor), 3) << launcher.text;
    }
    EXPECT_EQ(launcher.Count(" -> "), 3 * 5) << "the fifth is the folder that ls reads\n" << launcher.text;
  }
}

TEST(LaunchTest, WrongOptionsAreNamed) {
  EXPECT_EQ(Launch({.ranks = 0, .command = {"true"}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Launch({.ranks = 1, .command = {}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Launch({.ranks = 1, .first_rank = -1, .command = {"true"}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  absl::Status status = Launch({.ranks = 2, .command = {"no-such-program"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot start 'no-such-program': No such file"));
}

TEST(LaunchTest, AProgramOfThisFolderThatIsNotInPathIsFound) {
  const std::string name = absl::StrCat("program-of-launch-test-", ::getpid());
  ASSERT_EQ(::symlink("/bin/true", name.c_str()), 0);
  const absl::Status status = Launch({.ranks = 1, .command = {name}}).status();
  ::unlink(name.c_str());
  EXPECT_THAT(std::string(status.message()), HasSubstr("; it is in this folder: write ./" + name));
}

}  // namespace
}  // namespace tutti
