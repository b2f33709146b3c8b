#include "bindings/cli/launch/hosts.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bindings/cli/command_line.h"
#include "bindings/cli/write_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/command_run.h"
#include "tests/store/held_port.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(LaunchHostsTest, ReadsTheFilesOfMpis) {
  const ScratchFile file(".txt");
  ASSERT_TRUE(
      WriteFile(file.path(), "# a cluster\nnode1 slots=4\n\n  node2:2 # half\nnode3\n[::1] slots=3\n[fe80::2]\n").ok());
  const absl::StatusOr<std::vector<HostRanks>> hosts = ReadHosts(file.path());
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  std::vector<std::string> said;
  for (const HostRanks& one : *hosts) said.push_back(absl::StrCat(one.host, " ", one.ranks));
  EXPECT_THAT(said, testing::ElementsAre("node1 4", "node2 2", "node3 1", "[::1] 3", "[fe80::2] 1"));
}

TEST(LaunchHostsTest, NamesTheLineThatIsWrong) {
  const ScratchFile file(".txt");
  for (const char* line : {"node1 slots=0", "node1 slots=many", "node1:", "node1 4", "node1 slots=2 max_slots=4", ":3",
                           "$(reboot)", "node1:0", "node1:4 slots=2"}) {
    ASSERT_TRUE(WriteFile(file.path(), absl::StrCat("node0\n", line, "\n")).ok());
    const absl::Status status = ReadHosts(file.path()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << line;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("line 2: '", line, "': write a host")));
  }
  const std::pair<std::string, std::string> others[] = {
      {"2001:db8::1 slots=4",
       "line 2: '2001:db8::1 slots=4': write an IPv6 address in brackets: [2001:db8::1] slots=4"},
      {"[::1]:4", "line 2: '[::1]:4': write an IPv6 address in brackets: "},
      {"node0:2", "line 2: 'node0:2': node0 is in line 1, too: write one line with the ranks of both"},
      {"node1:65535\nnode2:2", "line 3: 'node2:2': the lines up to here name 65538 ranks, and a job has at most 65536"},
  };
  for (const auto& [lines, answer] : others) {
    ASSERT_TRUE(WriteFile(file.path(), absl::StrCat("node0\n", lines, "\n")).ok());
    const absl::Status status = ReadHosts(file.path()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << lines;
    EXPECT_THAT(std::string(status.message()), HasSubstr(answer));
  }
  ASSERT_TRUE(WriteFile(file.path(), "# nobody\n").ok());
  EXPECT_THAT(std::string(ReadHosts(file.path()).status().message()), HasSubstr("names no host"));
  EXPECT_THAT(std::string(ReadHosts("/nowhere/hosts").status().message()), HasSubstr("cannot read /nowhere/hosts"));
}

// The lines that a user runs on the hosts.
std::vector<std::string> Commands(const CommandRun& printed) {
  std::vector<std::string> commands;
  for (const absl::string_view line : absl::StrSplit(printed.out, '\n', absl::SkipEmpty())) {
    if (line[0] != '#') commands.emplace_back(line);
  }
  return commands;
}

// Runs `script` in a shell that finds `tutti`.
CommandRun RunScript(const std::string& script) {
  const ScratchFile shell(".sh"), out(".out");
  const std::filesystem::path folder = std::filesystem::path(TUTTI_COMMAND).parent_path();
  EXPECT_TRUE(WriteFile(shell.path(), absl::StrCat("PATH=\"", folder.string(), ":$PATH\"; ", script)).ok());
  const int status = std::system(absl::StrCat("sh ", shell.path(), " > ", out.path(), " 2>&1").c_str());
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1, .out = out.Read(), .err = ""};
}

// Two hosts that are both this machine.
TEST(LaunchHostsTest, TheCommandsStartOneJob) {
  const ScratchFile file(".txt"), json(".json");
  ASSERT_TRUE(WriteFile(file.path(), "127.0.0.1 slots=2\nlocalhost slots=1\n").ok());
  const HeldPort port;
  const CommandRun printed =
      RunTutti(absl::StrCat("launch --hosts ", file.path(), " --port ", port.number,
                            " -- tutti bench all_reduce -b 4 -e 4 --iters 2 --csv \"'a' b.csv\" --json ", json.path()),
               "unset TUTTI_JOB_SECRET_FILE; ");
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_THAT(printed.out, HasSubstr("# 127.0.0.1: ranks 0 to 1\ntutti launch -n 2 --first-rank 0 -- "));
  EXPECT_THAT(printed.out, HasSubstr("# localhost: rank 2\ntutti launch -n 1 --first-rank 2 -- "));
  const std::vector<std::string> commands = Commands(printed);
  ASSERT_EQ(commands.size(), 2U);
  const std::string home = testing::TempDir() + "tutti-hosts-" + std::to_string(getpid());
  std::filesystem::create_directory(home);
  const CommandRun job = RunScript(absl::StrCat("cd ", home, "; export HOME=", home, " TUTTI_TIMEOUT=60; ",
                                                "(umask 077; printf %064d 7 > .tutti_job_secret); ", commands[1], " & ",
                                                commands[0], "; first=$?; wait $! && exit $first"));
  EXPECT_EQ(job.exit_code, 0) << job.out;
  EXPECT_TRUE(std::filesystem::exists(home + "/'a' b.csv"));
  EXPECT_THAT(json.Read(), HasSubstr("\"ranks\":3"));
  std::filesystem::remove_all(home);
}

TEST(LaunchHostsTest, AFirstHostThatOthersCannotFindIsToldInAComment) {
  const ScratchFile file(".txt");
  const auto printed = [&file](const std::string& hosts) {
    EXPECT_TRUE(WriteFile(file.path(), hosts).ok());
    return RunTutti(absl::StrCat("launch --hosts ", file.path(), " -- true"));
  };
  for (const std::string first : {"localhost", "127.0.1.1", "[::1]"}) {
    const CommandRun told = printed(absl::StrCat(first, "\n127.0.0.1\nnode2\nnode3\n"));
    EXPECT_EQ(Commands(told).size(), 4U) << told.err;
    EXPECT_THAT(told.out, HasSubstr(absl::StrCat("\n# The ranks meet at ", first,
                                                 ", which is another machine on each "
                                                 "host: write a name by which node2 finds the first host, unless")));
  }
  for (const char* hosts : {"localhost\n127.0.0.1\n", "node1\nlocalhost\n", "localhost\n", "localhost1\nnode2\n"}) {
    EXPECT_THAT(printed(hosts).out, Not(HasSubstr("another machine"))) << hosts;
  }
}

// A rank of an earlier try with other arguments, which still waits for the others, must not join the next one.
TEST(LaunchHostsTest, OtherArgumentsAreAnotherJob) {
  const ScratchFile file(".txt");
  ASSERT_TRUE(WriteFile(file.path(), "node1\nnode2\n").ok());
  const auto id_of_job = [&](const std::string& command) {
    const CommandRun printed = RunTutti(absl::StrCat("launch --hosts ", file.path(), " -- ", command));
    std::set<std::string> ids;
    for (const std::string& line : Commands(printed)) {
      const std::size_t begin = line.find("TUTTI_JOB_ID=");
      ids.insert(line.substr(begin, line.find(' ', begin) - begin));
    }
    EXPECT_EQ(ids.size(), 1U) << printed.out << printed.err;
    return *ids.begin();
  };
  EXPECT_EQ(id_of_job("train --lr 1"), id_of_job("train --lr 1"));
  EXPECT_NE(id_of_job("train --lr 1"), id_of_job("train --lr 2"));
}

TEST(LaunchHostsTest, RanksOfEveryHostAreNamedAsInTheJob) {
  const ScratchFile file(".txt");
  ASSERT_TRUE(WriteFile(file.path(), "node1 slots=2\nnode2 slots=2\n").ok());
  const CommandRun printed =
      RunTutti(absl::StrCat("launch --tag-output --hosts ", file.path(),
                            " -- sh -c 'echo $TUTTI_RANK of $TUTTI_SIZE; [ $TUTTI_RANK = 2 ] || exit $TUTTI_RANK'"));
  const std::vector<std::string> commands = Commands(printed);
  ASSERT_EQ(commands.size(), 2U) << printed.err;
  for (const auto& [command, last] : {std::pair(commands[0], 1), std::pair(commands[1], 3)}) {
    const CommandRun host = RunScript(command);
    EXPECT_EQ(host.exit_code, last);
    EXPECT_THAT(host.out, HasSubstr(absl::StrCat("[", last, "] ", last, " of 4\n")));
    EXPECT_THAT(host.out, HasSubstr(absl::StrCat("tutti launch: rank ", last, " exited with code ", last)));
  }
}

TEST(LaunchHostsTest, TheCommandsNameTheSecretThatTheUserHas) {
  const ScratchFile file(".txt");
  ASSERT_TRUE(WriteFile(file.path(), "node1\n").ok());
  const std::string print = absl::StrCat("launch --hosts ", file.path(), " -- sh -c 'echo =$TUTTI_JOB_SECRET_FILE='");
  const std::string usual = "(umask 077; openssl rand -hex 32 > \"$HOME/.tutti_job_secret\")\n";
  for (const char* none : {"unset TUTTI_JOB_SECRET_FILE; ", "export TUTTI_JOB_SECRET_FILE=; "}) {
    const CommandRun printed = RunTutti(print, none);
    EXPECT_THAT(printed.out, HasSubstr(usual));
    ASSERT_EQ(Commands(printed).size(), 1U) << printed.err;
    EXPECT_THAT(RunScript("export HOME='/at home'; " + Commands(printed)[0]).out,
                HasSubstr("=/at home/.tutti_job_secret="));
  }
  for (const std::string path : {"/keys/job", "/my keys/job's $HOME; true"}) {
    const CommandRun printed = RunTutti(print, "export TUTTI_JOB_SECRET_FILE=" + CommandLine({path}) + "; ");
    EXPECT_THAT(printed.out, Not(HasSubstr(usual)));
    EXPECT_THAT(printed.out,
                HasSubstr("copy the file that TUTTI_JOB_SECRET_FILE names to the same path on every host"));
    ASSERT_EQ(Commands(printed).size(), 1U) << printed.err;
    EXPECT_THAT(RunScript("unset TUTTI_JOB_SECRET_FILE; " + Commands(printed)[0]).out, HasSubstr("=" + path + "="));
  }
}

// Each of launch's flags either says which ranks are meant, or is in the printed commands. A new flag is neither.
TEST(LaunchHostsTest, TheCommandsHaveAllFlagsThatHostsShare) {
  const ScratchFile file(".txt");
  ASSERT_TRUE(WriteFile(file.path(), "node1\n").ok());
  const CommandRun plain = RunTutti(absl::StrCat("launch --hosts ", file.path(), " -- true"));
  EXPECT_THAT(plain.out, HasSubstr("tutti launch -n 1 --first-rank 0 -- sh -c"));
  const CommandRun tagged = RunTutti(absl::StrCat("launch --tag-output --hosts ", file.path(), " -- true"));
  EXPECT_THAT(tagged.out, HasSubstr("tutti launch -n 1 --first-rank 0 --tag-output -- sh -c"));
  const CommandRun bound = RunTutti(absl::StrCat("launch --bind --hosts ", file.path(), " -- true"));
  EXPECT_THAT(bound.out, HasSubstr("tutti launch -n 1 --first-rank 0 --bind -- sh -c"));
  const CommandRun patient = RunTutti(absl::StrCat("launch --grace 30.5 --hosts ", file.path(), " -- true"));
  EXPECT_THAT(patient.out, HasSubstr("tutti launch -n 1 --first-rank 0 --grace 30.5 -- sh -c"));
  std::vector<std::string> flags;
  for (const absl::string_view line : absl::StrSplit(RunTutti("launch --help").out, '\n')) {
    if (absl::StartsWith(line, "  -")) flags.emplace_back(*absl::StrSplit(line.substr(2), ' ').begin());
  }
  EXPECT_THAT(flags, testing::ElementsAre("-h,--help", "-n,--ranks", "--hosts", "--port", "--first-rank",
                                          "--tag-output", "--bind", "--grace"))
      << "CommandsOfHosts must hand a new flag on, and this test must look for that";
}

TEST(LaunchHostsTest, GoesWithoutRanks) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"launch --hosts hosts.txt -n 2 -- true", "--ranks excludes --hosts"},
      {"launch --port 29400 -n 2 -- true", "--port requires --hosts"},
      {"launch --hosts hosts.txt --first-rank 2 -- true", "--first-rank requires --ranks"},
      {"launch -n 2 --first-rank -1 -- true", "expected a whole number from 0 to 65535, found -1"},
      {"launch --hosts /nowhere/hosts -- true", "cannot read /nowhere/hosts"},
      {"launch --hosts hosts.txt", "command is required"},
      {"launch --hosts '' -- echo started", "--hosts: '' is the name of no file; write one, or leave the flag out"},
  };
  for (const auto& [arguments, answer] : mistakes) {
    const CommandRun run = RunTutti(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments;
    EXPECT_EQ(run.out, "") << arguments;
    EXPECT_THAT(run.err, HasSubstr(answer)) << arguments;
  }
}

}  // namespace
}  // namespace tutti::cli
