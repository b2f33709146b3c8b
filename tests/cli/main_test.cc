// The command as a whole: help, versions, mistakes, and the subcommands that only print.
#include <sched.h>
#include <signal.h>

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/command_run.h"
#include "tutti/version.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MainTest, HelpsWithEverySubcommand) {
  const CommandRun all = RunTutti("--help");
  EXPECT_EQ(all.exit_code, 0);
  for (const char* name : {"launch", "bench", "plan", "info", "docs"}) {
    EXPECT_THAT(all.out, HasSubstr(name));
    const CommandRun one = RunTutti(std::string(name) + " --help");
    EXPECT_EQ(one.exit_code, 0) << name;
    EXPECT_THAT(one.out, HasSubstr("Usage:")) << name;
  }
}

TEST(MainTest, LaunchSaysWhatItGivesToRanks) {
  EXPECT_THAT(RunTutti("launch --help").out, HasSubstr("Ranks have OMP_NUM_THREADS"));
}

TEST(MainTest, LaunchSaysWhatCtrlZStops) {
  EXPECT_THAT(RunTutti("launch --help").out, HasSubstr("Ctrl-Z (SIGTSTP) stops this command alone, and not the ranks"));
}

TEST(MainTest, KnowsItsVersion) { EXPECT_EQ(RunTutti("--version").out, std::string(Version()) + "\n"); }

TEST(MainTest, SaysWhatWouldBeRight) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"", "A subcommand is required"},
      {"benhc", "no command 'benhc'; did you mean bench?"},
      {"lanch -n 2", "no command 'lanch'; did you mean launch?"},
      {"lanch -n 2 -- true", "no command 'lanch'; did you mean launch?"},
      {"--verison", "no flag '--verison'; did you mean --version?"},
      {"launch -- true", "--ranks is required"},
      {"launch -n 2", "command is required"},
      {"advise --ranks 4", "--parameters, --step-ms are required"},
      {"launch -n two -- true", "two"},
      {"launch --rank 2 -- true", "did you mean --ranks?"},
      {"docs algorithm", "page: 'algorithm' is not known; did you mean algorithms?"},
      {"docs nope", "page: 'nope' is not known; valid: algorithms, configuration, schedules"},
      {"bench all_reduce --buffers area", "--buffers: 'area' is not known; did you mean arena?"},
      {"info now", "one argument too many"},
  };
  for (const auto& [arguments, answer] : mistakes) {
    const CommandRun run = RunTutti(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments;
    EXPECT_THAT(run.err, HasSubstr(answer)) << arguments;
    EXPECT_THAT(run.err, HasSubstr("--help")) << arguments;
  }
}

// CLI11 would read 010 as an octal 8.
TEST(MainTest, NoWholeNumberBeginsWithZero) {
  for (const char* arguments :
       {"bench all_reduce --ranks 010", "bench all_reduce --iters 010", "plan all_reduce --count 010",
        "advise --link 1G --parameters 1M --step-ms 50 --ranks 010", "launch -n 010 -- true"}) {
    const CommandRun run = RunTutti(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments;
    EXPECT_THAT(run.err, HasSubstr(": write 10 in place of 010, without a leading 0")) << arguments;
  }
  EXPECT_THAT(RunTutti("plan broadcast --root 00").err, HasSubstr("--root: write 0 in place of 00"));
  EXPECT_EQ(RunTutti("plan broadcast --root 0").exit_code, 0);
}

TEST(MainTest, FailsWhenItsOutputCannotBeWritten) {
  for (const char* arguments :
       {"--help", "--version", "plan --help", "plan all_reduce", "info", "docs algorithms",
        "bench all_reduce --iters 1 -b 4 -e 4", "bench all_reduce --transport inproc --iters 1 -b 4 -e 4",
        "bench all_reduce --iters 1 -b 4 -e 4 --json -"}) {
    const CommandRun run = RunTutti(std::string(arguments) + " >/dev/full");
    EXPECT_EQ(run.exit_code, 1) << arguments;
    EXPECT_THAT(run.err, HasSubstr("tutti: cannot write to standard output")) << arguments;
  }
}

// With tags the launcher passes on what ranks print; without tags ranks have the launcher's descriptors.
TEST(MainTest, LaunchWorksWithoutStandardDescriptors) {
  for (const char* closed : {">&- 2>/dev/null", "2>&- >/dev/null", "<&- >&- 2>&-"}) {
    for (const char* tags : {"", "--tag-output"}) {
      const CommandRun run =
          RunTutti(std::string("launch ") + tags + " -n 2 -- sh -c 'echo out; echo err >&2' " + closed + "; echo $?");
      EXPECT_EQ(run.out, "0\n") << tags << " " << closed;
    }
  }
}

TEST(MainTest, LaunchWithTooFewDescriptorsSaysHowToGetMore) {
  // Fewer descriptors fail earlier, in a loader that finds no library or without a store; more are enough.
  bool named = false;
  for (int limit = 4; limit < 40; ++limit) {
    const CommandRun run = RunTutti("launch --tag-output -n 2 -- true", "ulimit -n " + std::to_string(limit) + "; ");
    if (run.exit_code == 0) break;
    if (run.err.find("cannot make a pipe") == std::string::npos) continue;
    EXPECT_THAT(run.err, HasSubstr("cannot make a pipe: Too many open files; raise ulimit -n"));
    named = true;
  }
  EXPECT_TRUE(named);
}

TEST(MainTest, LaunchReportsTheRankThatFails) {
  const CommandRun run = RunTutti("launch -n 2 -- sh -c '[ $TUTTI_RANK = 0 ] || exit 7'");
  EXPECT_EQ(run.exit_code, 7);
  EXPECT_THAT(run.err, HasSubstr("rank 1"));
}

TEST(MainTest, LaunchGivesRanksAsLongToEndAsTheUserSays) {
  const std::string command = " -- sh -c 'trap \"\" TERM; kill -TERM $PPID; while :; do sleep 0.1; done'";
  const CommandRun run = RunTutti("launch -n 1 --grace 0.05" + command);
  EXPECT_EQ(run.exit_code, 128 + SIGTERM);
  EXPECT_THAT(run.err, HasSubstr("killing the ranks that did not end within 50ms: 0\n"));
  EXPECT_THAT(run.err, Not(HasSubstr("ended by")));
  EXPECT_EQ(RunTutti("launch -n 1 --grace -1" + command).exit_code, 2);
}

// CLI11 takes a word in brackets for a list.
TEST(MainTest, LaunchGivesEveryWordToTheProgramAsItIs) {
  const std::string program = "printf '<%s>' '[1,2]' '[]' '[ a ]' '' a,b '{}' -- -n '++'";
  const std::string printed = "<[1,2]><[]><[ a ]><><a,b><{}><--><-n><++>";
  for (const char* before : {"launch -n 1 -- ", "launch -n 1 ", "launch --tag-output -n1 -- "}) {
    const CommandRun run = RunTutti(before + program);
    EXPECT_EQ(run.exit_code, 0) << before << run.err;
    EXPECT_THAT(run.out, HasSubstr(printed)) << before;
  }
  const ScratchFile hosts(".hosts");
  std::ofstream(hosts.path()) << "node1\n";
  EXPECT_THAT(RunTutti("launch --hosts " + hosts.path() + " -- " + program).out,
              HasSubstr("printf '<%s>' '[1,2]' '[]' '[ a ]' '' a,b '{}' -- -n ++\n"));
}

TEST(MainTest, InfoShowsValuesAndWhereTheyComeFrom) {
  const CommandRun run = RunTutti("info");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* text : {"Versions", "Transports", "inproc", "Devices", "gradient_allreduce", "uint8_block", "ring",
                           "TUTTI_TIMEOUT", "default"}) {
    EXPECT_THAT(run.out, HasSubstr(text));
  }
}

TEST(MainTest, InfoSaysHowTuttiWasCompiled) {
  const BuildSummary build = DescribeBuild();
  EXPECT_THAT(build.compiler, testing::ContainsRegex("[0-9]"));
  EXPECT_THAT(RunTutti("info").out, HasSubstr(build.in_words()));
}

TEST(MainTest, InfoSaysHowManyProcessorsThisProcessCanUse) {
  cpu_set_t before, first;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "this machine has one processor";
  int processor = 0;
  while (!CPU_ISSET(processor, &before)) ++processor;
  CPU_ZERO(&first);
  CPU_SET(processor, &first);
  ASSERT_EQ(sched_setaffinity(0, sizeof first, &first), 0);
  const CommandRun run = RunTutti("info");
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_THAT(run.out, testing::ContainsRegex("processor +1 of [0-9]+ × "));
}

// Every machine has an answer: a version, or the reason why there is none.
TEST(MainTest, InfoNamesCudaAndNccl) {
  const CommandRun run = RunTutti("info");
  EXPECT_THAT(run.out, testing::ContainsRegex("CUDA +([0-9]+\\.[0-9] \\(the driver serves|no GPU: )"));
  EXPECT_THAT(run.out, testing::ContainsRegex("NCCL +([0-9]+\\.[0-9]+\\.[0-9]+ \\(|no NCCL: )"));
  setenv("TUTTI_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  const CommandRun missing = RunTutti("info");
  unsetenv("TUTTI_NCCL_LIBRARY");
  EXPECT_EQ(missing.exit_code, 0);
  EXPECT_THAT(missing.out, testing::ContainsRegex("NCCL +no NCCL: TUTTI_NCCL_LIBRARY cannot be loaded: /nowhere/"));
  EXPECT_THAT(missing.out, testing::ContainsRegex("TUTTI_NCCL_LIBRARY +/nowhere/libnccl.so.2 +environment"));
}

TEST(MainTest, InfoShowsTheEnvironment) {
  setenv("TUTTI_TIMEOUT", "7", 1);
  setenv("TUTTI_TIMEOT", "8", 1);
  const CommandRun run = RunTutti("info");
  unsetenv("TUTTI_TIMEOUT");
  unsetenv("TUTTI_TIMEOT");
  EXPECT_THAT(run.out, testing::ContainsRegex("TUTTI_TIMEOUT +7 +environment"));
  EXPECT_THAT(run.out, HasSubstr("did you mean TUTTI_TIMEOUT?"));
}

TEST(MainTest, InfoSaysThatVariablesOfUcxChooseNoNetwork) {
  const std::string why = " is set, and has no effect: TUTTI_INTERFACE chooses the network\n";
  const std::string out = RunTutti("info", "UCX_TLS=rc,sm ").out;
  EXPECT_THAT(out, HasSubstr("UCX_TLS" + why));
  EXPECT_THAT(out, testing::Not(HasSubstr("UCX_NET_DEVICES")));
  EXPECT_THAT(RunTutti("info", "UCX_NET_DEVICES=mlx5_0:1 ").out, HasSubstr("UCX_NET_DEVICES" + why));
}

// As under PyTorch, the ranks of this command find each other without variables: a world of threads.
TEST(MainTest, AMisspeltVariableIsPointedOutOnce) {
  setenv("TUTTI_TIMEOT", "8", 1);
  const CommandRun run = RunTutti("bench all_reduce --transport inproc --ranks 2 -b 4 -e 4 --iters 1");
  unsetenv("TUTTI_TIMEOT");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err,
            "tutti: warning: TUTTI_TIMEOT is no variable of Tutti and has no effect; did you mean "
            "TUTTI_TIMEOUT?\n");
}

TEST(MainTest, InfoSaysWhichVariableIsWrong) {
  setenv("TUTTI_TIMEOUT", "soon", 1);
  const CommandRun run = RunTutti("info");
  unsetenv("TUTTI_TIMEOUT");
  EXPECT_NE(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("TUTTI_TIMEOUT=soon"));
  setenv("TUTTI_SCHEDULE", "all_reduce=rings", 1);
  const CommandRun scheduled = RunTutti("info");
  unsetenv("TUTTI_SCHEDULE");
  EXPECT_NE(scheduled.exit_code, 0);
  EXPECT_THAT(scheduled.err, HasSubstr("TUTTI_SCHEDULE=all_reduce=rings: unknown schedule 'rings' of all_reduce"));
}

TEST(MainTest, InfoShowsEverythingWhereAnExtensionFailed) {
  const std::string without = "TUTTI_EXTENSIONS=nowhere/libmine.so ";
  const std::string error = "extension nowhere/libmine.so: the file cannot be read: No such file";
  const CommandRun info = RunTutti("info", without);
  EXPECT_EQ(info.exit_code, 2);
  EXPECT_THAT(info.out, HasSubstr("  extensions             " + error));
  EXPECT_THAT(info.out, HasSubstr("Configuration (value, where it comes from)"));
  EXPECT_THAT(info.err, HasSubstr("tutti: " + error));
  const CommandRun plan = RunTutti("plan all_reduce", without);
  EXPECT_EQ(plan.exit_code, 2);
  EXPECT_EQ(plan.out, "");
}

// Whatever variable is wrong.
TEST(MainTest, NothingRunsWithoutExtensionsBecauseAVariableIsWrong) {
  for (const char* arguments : {"plan all_reduce", "plan all_reduce:mine", "check all_reduce:mine", "docs schedules"}) {
    const CommandRun run = RunTutti(arguments, "TUTTI_TIMEOUT=soon TUTTI_EXTENSIONS=nowhere/libmine.so ");
    EXPECT_EQ(run.exit_code, 2) << arguments;
    EXPECT_EQ(run.out, "") << arguments;
    EXPECT_THAT(run.err, HasSubstr("TUTTI_EXTENSIONS was loaded: TUTTI_TIMEOUT=soon: expected seconds")) << arguments;
  }
  EXPECT_EQ(RunTutti("plan all_reduce", "TUTTI_TIMEOUT=soon ").exit_code, 0);
}

}  // namespace
}  // namespace tutti::cli
