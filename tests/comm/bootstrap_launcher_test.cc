// Bootstraps under the launchers of this machine: each starts this very program again, as the ranks of a job.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/store/temporary_directory.h"
#include "tutti/bootstrap.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(120);

// The program of a rank, disabled because it runs only as a child of the tests below.
TEST(DISABLED_BootstrapProgram, Rank) {
  for (int call = 0; call < 2; ++call) {
    absl::StatusOr<Bootstrap> job = BootstrapFromEnvironment(kTimeout);
    ASSERT_TRUE(job.ok()) << job.status();
    const Identity& self = job->identity;
    auto ranks =
        ExchangeBlobs(*job->store, "ranks", self.rank, self.size, absl::StrCat(self.rank), absl::Now() + kTimeout);
    ASSERT_TRUE(ranks.ok()) << ranks.status();
    for (Rank rank = 0; rank < self.size; ++rank)
      ASSERT_EQ((*ranks)[static_cast<std::size_t>(rank)], absl::StrCat(rank));
    std::fprintf(stderr, "<%s %d/%d local %d/%d call %d>\n", self.launcher.c_str(), self.rank, self.size,
                 self.local_rank, self.local_size, call);
  }
}

// Two threads of rank 0 of two, whose peer does not come: each waits for as long as it was told.
TEST(DISABLED_BootstrapProgram, RankWithTwoThreads) {
  std::atomic<bool> begins = false;
  std::thread patient([&] {
    begins = true;
    EXPECT_FALSE(BootstrapFromEnvironment(absl::Seconds(8)).ok());
  });
  while (!begins) absl::SleepFor(absl::Milliseconds(1));
  absl::SleepFor(absl::Seconds(1));
  const absl::Time begin = absl::Now();
  const absl::Status status = BootstrapFromEnvironment(absl::Milliseconds(100)).status();
  std::fprintf(stderr, "<%s after %s>\n", status.ToString().c_str(),
               absl::Now() - begin < absl::Seconds(4) ? "0" : "8");
  patient.join();
}

// Rank 1 comes when rank 0 has given up twice; then both call for as long as it takes.
TEST(DISABLED_BootstrapProgram, RankThatRepeats) {
  constexpr int kMissed = 2;
  const std::string has_given_up = absl::StrCat(std::getenv("XDG_RUNTIME_DIR"), "/has_given_up");
  const bool comes_late = absl::string_view(std::getenv("TUTTI_RANK")) == "1";
  for (int call = 0; !comes_late && call < kMissed; ++call) {
    EXPECT_THAT(BootstrapFromEnvironment(absl::Milliseconds(300)).status().ToString(), HasSubstr("missing ranks: 1"));
  }
  if (!comes_late) std::filesystem::create_directory(has_given_up);
  while (!std::filesystem::exists(has_given_up)) std::this_thread::yield();
  absl::StatusOr<Bootstrap> job = BootstrapFromEnvironment(kTimeout);
  int failures = 0;
  for (; !job.ok() && failures < kMissed; ++failures) {
    EXPECT_EQ(job.status().code(), absl::StatusCode::kDeadlineExceeded) << job.status();
    job = BootstrapFromEnvironment(kTimeout);
  }
  ASSERT_TRUE(job.ok()) << job.status();
  const Identity& self = job->identity;
  ASSERT_TRUE(ExchangeBlobs(*job->store, "ranks", self.rank, self.size, "", absl::Now() + kTimeout).ok());
  std::fprintf(stderr, "<%d after %d>\n", self.rank, failures);
}

// The environment of a rank that has failed to join becomes that of a restarted job, whose ranks meet at one port with
// those of the first life.
TEST(DISABLED_BootstrapProgram, RankWhoseJobIsRestarted) {
  const std::string has_given_up = absl::StrCat(std::getenv("XDG_RUNTIME_DIR"), "/has_given_up");
  if (absl::string_view(std::getenv("TUTTI_RANK")) == "0") {
    EXPECT_FALSE(BootstrapFromEnvironment(absl::Milliseconds(300)).ok());
    std::filesystem::create_directory(has_given_up);
  }
  while (!std::filesystem::exists(has_given_up)) std::this_thread::yield();
  ::setenv("TUTTI_EPOCH", "1", /*overwrite=*/1);
  // The server of the first life may still be there when rank 1 comes.
  const absl::StatusOr<Bootstrap> job = BootstrapFromEnvironment(kTimeout);
  ASSERT_TRUE(job.ok()) << job.status();
  const Identity& self = job->identity;
  ASSERT_TRUE(ExchangeBlobs(*job->store, "ranks", self.rank, self.size, "", absl::Now() + kTimeout).ok());
}

// Rank 2 dies after it has joined; the other ranks are told long before their timeout.
TEST(DISABLED_BootstrapProgram, RankOfWhichOneDies) {
  absl::StatusOr<Bootstrap> job = BootstrapFromEnvironment();
  ASSERT_TRUE(job.ok()) << job.status();
  const Identity& self = job->identity;
  if (self.rank == 2) ::raise(SIGKILL);
  const auto ranks = ExchangeBlobs(*job->store, "ranks", self.rank, self.size, "", absl::InfiniteFuture());
  std::fprintf(stderr, "<%d: %s>\n", self.rank, ranks.status().ToString().c_str());
}

// Started without standard input and output.
TEST(DISABLED_BootstrapProgram, RankThatPrints) {
  absl::StatusOr<Bootstrap> job = BootstrapFromEnvironment(kTimeout);
  ASSERT_TRUE(job.ok()) << job.status();
  std::fprintf(stderr, "<%d: %s and %s>\n", job->identity.rank,
               std::filesystem::read_symlink("/proc/self/fd/0").c_str(),
               std::filesystem::read_symlink("/proc/self/fd/1").c_str());
}

// A child that a rank forks inherits the rank's environment, and is refused as a rank.
TEST(DISABLED_BootstrapProgram, RankThatForks) {
  absl::StatusOr<Bootstrap> job = BootstrapFromEnvironment(kTimeout);
  ASSERT_TRUE(job.ok()) << job.status();
  const pid_t child = ::fork();
  if (child == 0) {
    std::fprintf(stderr, "<child: %s>\n", BootstrapFromEnvironment().status().ToString().c_str());
    std::exit(0);  // with destructors
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const Identity& self = job->identity;
  EXPECT_TRUE(ExchangeBlobs(*job->store, "ranks", self.rank, self.size, "", absl::Now() + kTimeout).ok());
}

struct Output {
  int status = -1;
  std::string text;
};

Output Shell(const std::string& command) {
  Output output;
  FILE* pipe = ::popen(absl::StrCat("{ ", command, " ; } 2>&1 < /dev/null").c_str(), "re");
  std::array<char, 4096> buffer;
  while (const std::size_t bytes = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.text.append(buffer.data(), bytes);
  }
  output.status = ::pclose(pipe);
  return output;
}

// Runs `commands` at the same time. The last line of the output has the exit code of each, as in "ended with 0 137";
// the status is 0 where all are.
Output RunTogether(const std::vector<std::string>& commands) {
  std::string all;
  for (const std::string& command : commands) absl::StrAppend(&all, command, " & started=\"$started $!\"; ");
  return Shell(absl::StrCat(all, "for id in $started; do wait $id; codes=\"$codes $?\"; done; ",
                            "echo \"ended with$codes\"; case $codes in *[1-9]*) exit 1 ;; esac"));
}

bool HasProgram(const std::string& name) { return Shell("command -v " + name).status == 0; }

std::string RankProgram(const std::string& name = "Rank") {
  return absl::StrCat("\"", std::filesystem::read_symlink("/proc/self/exe").string(),
                      "\" --gtest_also_run_disabled_tests --gtest_filter=DISABLED_BootstrapProgram.", name);
}

// Checks the output of every rank: each has seen all others, twice.
void ExpectRanks(const Output& output, const std::string& launcher, int size, int local_size) {
  EXPECT_EQ(output.status, 0) << output.text;
  for (Rank rank = 0; rank < size; ++rank) {
    for (int call = 0; call < 2; ++call) {
      EXPECT_THAT(output.text, HasSubstr(absl::StrCat("<", launcher, " ", rank, "/", size, " local ", rank % local_size,
                                                      "/", local_size, " call ", call, ">")));
    }
  }
}

class BootstrapLauncherTest : public testing::Test {
 protected:
  // The job uses neither the user's own runtime directory nor the variables of a launcher that runs this test.
  const TemporaryDirectory runtime_;
  const std::string env_ = absl::StrCat("env -u TUTTI_RANK -u TUTTI_SIZE XDG_RUNTIME_DIR=", runtime_.path(), " ");

  // Runs `program` on `size` ranks started by hand, as RunTogether does.
  Output RunByHand(int size, const std::string& variables, const std::string& program) {
    std::vector<std::string> ranks;
    for (Rank rank = 0; rank < size; ++rank) {
      ranks.push_back(absl::StrCat(env_, variables, " TUTTI_SIZE=", size, " TUTTI_RANK=", rank, " ", program));
    }
    return RunTogether(ranks);
  }
};

TEST_F(BootstrapLauncherTest, OpenMpi) {
  if (!HasProgram("mpirun.openmpi")) GTEST_SKIP() << "mpirun.openmpi is not installed";
  ExpectRanks(Shell(env_ + "mpirun.openmpi --allow-run-as-root --oversubscribe -n 3 " + RankProgram()), "openmpi", 3,
              3);
}

TEST_F(BootstrapLauncherTest, Mpich) {
  if (!HasProgram("mpirun.mpich")) GTEST_SKIP() << "mpirun.mpich is not installed";
  ExpectRanks(Shell(env_ + "mpirun.mpich -n 3 " + RankProgram()), "pmi", 3, 3);
}

TEST_F(BootstrapLauncherTest, MpichByWayOfAShell) {
  if (!HasProgram("mpirun.mpich")) GTEST_SKIP() << "mpirun.mpich is not installed";
  ExpectRanks(Shell(env_ + "mpirun.mpich -n 2 sh -c '" + RankProgram() + "; exit $?'"), "pmi", 2, 2);
}

TEST_F(BootstrapLauncherTest, RanksStartedByHand) { ExpectRanks(RunByHand(2, "", RankProgram()), "tutti", 2, 2); }

// As srun, su and sudo -E hand the variable on.
TEST_F(BootstrapLauncherTest, ARuntimeDirectoryThatIsNotThisUsersAloneIsLeftAside) {
  const std::string open = runtime_.path() + "/open";
  std::filesystem::create_directory(open);
  std::filesystem::permissions(open, std::filesystem::perms::all);
  for (const std::string& directory : {runtime_.path() + "/missing", open}) {
    const std::string variables = absl::StrCat("XDG_RUNTIME_DIR=", directory, " TUTTI_JOB_ID=", directory);
    ExpectRanks(RunByHand(2, variables, RankProgram()), "tutti", 2, 2);
    EXPECT_FALSE(std::filesystem::exists(directory + "/tutti"));
  }
}

// The directory is this user's own, but a file is in the place of what is to be made there.
TEST_F(BootstrapLauncherTest, WhatIsWrongInTheRuntimeDirectoryIsToldWithTheVariable) {
  std::filesystem::create_symlink("nowhere", runtime_.path() + "/tutti");
  EXPECT_THAT(RunByHand(2, "", RankProgram()).text,
              HasSubstr(absl::StrCat("XDG_RUNTIME_DIR: ", runtime_.path(), "/tutti is no directory")));
}

TEST_F(BootstrapLauncherTest, ThroughADirectory) {
  const std::string variables =
      absl::StrCat("TUTTI_STORE=file://", runtime_.path(), " TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_SIZE=1");
  ExpectRanks(RunByHand(2, variables, RankProgram()), "tutti", 2, 1);
}

TEST_F(BootstrapLauncherTest, ThroughTheDirectoryOfTheEarlierLifeOfAJob) {
  for (const char* epoch : {"0", "1", "2"}) {
    const std::string variables = absl::StrCat("TUTTI_STORE=file://", runtime_.path(), " TUTTI_EPOCH=", epoch,
                                               " TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_SIZE=1");
    ExpectRanks(RunByHand(2, variables, RankProgram()), "tutti", 2, 1);
  }
}

// Torchrun tells the ranks of several nodes nothing by which they could tell two lives of their job apart.
TEST_F(BootstrapLauncherTest, TorchrunOnSeveralNodesIsToldThatADirectoryIsForOneLife) {
  const std::string common = absl::StrCat(env_, "TUTTI_STORE=file://", runtime_.path(),
                                          " LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x ");
  const auto life = [&](int restarts) {
    const std::string of_life = absl::StrCat(common, "TORCHELASTIC_RESTART_COUNT=", restarts, " RANK=");
    return RunTogether({of_life + "0 " + RankProgram(), of_life + "1 " + RankProgram()});
  };
  ExpectRanks(life(0), "torchrun", 2, 1);
  EXPECT_THAT(life(1).text,
              HasSubstr("the directory must be new for each job, and for each restart: torchrun does not"));
}

TEST_F(BootstrapLauncherTest, RanksAskEachOtherWhichOfThemShareANode) {
  const std::string common = absl::StrCat(env_, "TUTTI_STORE=file://", runtime_.path(), " WORLD_SIZE=3 ");
  const Output output =
      RunTogether({common + "RANK=0 TUTTI_NODE=a " + RankProgram(), common + "RANK=1 TUTTI_NODE=b " + RankProgram(),
                   common + "RANK=2 TUTTI_NODE=a " + RankProgram()});
  EXPECT_EQ(output.status, 0) << output.text;
  for (const char* rank : {"0/3 local 0/2", "1/3 local 0/1", "2/3 local 1/2"}) {
    EXPECT_THAT(output.text, HasSubstr(absl::StrCat("<torchrun ", rank, " call 1>")));
  }
}

TEST_F(BootstrapLauncherTest, RanksOfWhichOneAloneKnowsItsNodeAreToldSo) {
  const std::string common = absl::StrCat(env_, "TUTTI_STORE=file://", runtime_.path(), " TUTTI_SIZE=2 TUTTI_RANK=");
  const Output output =
      RunTogether({common + "0 " + RankProgram(), common + "1 TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_SIZE=1 " + RankProgram()});
  EXPECT_THAT(output.text, HasSubstr("ended with 1 1"));
  EXPECT_THAT(output.text, HasSubstr("rank 1 has local_rank=set, rank 0 has not set"));
}

TEST_F(BootstrapLauncherTest, SeveralNodesNeedASecretAndSayHowToMakeOne) {
  const Output output =
      Shell(env_ + "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 " +
            RankProgram());
  EXPECT_NE(output.status, 0);
  EXPECT_THAT(output.text, HasSubstr("openssl rand -hex 32"));
  EXPECT_THAT(output.text, HasSubstr("TUTTI_JOB_SECRET_FILE"));
}

TEST_F(BootstrapLauncherTest, SeveralNodesNeedAnAddress) {
  const Output output =
      Shell(env_ + "TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_SIZE=1 " + RankProgram());
  EXPECT_NE(output.status, 0);
  EXPECT_THAT(output.text, HasSubstr("set TUTTI_RENDEZVOUS=host:port"));
}

TEST_F(BootstrapLauncherTest, UnknownVariablesAreWarnedOfOnce) {
  const Output output = Shell(env_ + "TUTTI_TIMEOT=3 " + RankProgram());
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("tutti: warning: TUTTI_TIMEOT is no variable of Tutti"));
  EXPECT_EQ(output.text.find("warning"), output.text.rfind("warning"));
}

TEST_F(BootstrapLauncherTest, ADirectoryThatDoesNotExistIsAnError) {
  const std::string missing = runtime_.path() + "/nonexist";
  const std::string rank = "TUTTI_SIZE=2 TUTTI_RANK=0 TUTTI_STORE=";
  const Output output = Shell(absl::StrCat(env_, rank, "file://", missing, " ", RankProgram()));
  EXPECT_NE(output.status, 0);
  EXPECT_THAT(output.text, HasSubstr(absl::StrCat("TUTTI_STORE=file://", missing, ": directory ", missing)));
  EXPECT_FALSE(std::filesystem::exists(missing));
  EXPECT_THAT(Shell(absl::StrCat(env_, rank, "file://nonexist ", RankProgram())).text,
              HasSubstr("TUTTI_STORE=file://nonexist: expected the path of a directory from the root"));
}

// The ranks join through rank 0's own store, and through a file store in a directory.
TEST_F(BootstrapLauncherTest, ARankThatDiesWhileOthersJoinIsNamedToThem) {
  for (const std::string& store : {std::string(), absl::StrCat("TUTTI_STORE=file://", runtime_.path())}) {
    const Output output = RunByHand(3, "TUTTI_TIMEOUT=inf " + store, RankProgram("RankOfWhichOneDies"));
    for (const char* rank : {"<0: ", "<1: "}) {
      EXPECT_THAT(output.text,
                  HasSubstr(absl::StrCat(rank, "UNAVAILABLE: exchange 'ranks' of 3 ranks: rank 2 is gone")));
    }
    EXPECT_THAT(output.text, HasSubstr(absl::StrCat("ended with 0 0 ", 128 + SIGKILL)));
  }
}

TEST_F(BootstrapLauncherTest, ConnectionsNeverTakeThePlaceOfStandardInputAndOutput) {
  for (const std::string& store : {std::string(), absl::StrCat("TUTTI_STORE=file://", runtime_.path())}) {
    const Output output = RunByHand(2, store, RankProgram("RankThatPrints") + " <&- >&-");
    EXPECT_EQ(output.status, 0) << output.text;
    for (const char* rank : {"<0: ", "<1: "}) {
      EXPECT_THAT(output.text, HasSubstr(absl::StrCat(rank, "/dev/null and /dev/null>")));
    }
  }
}

TEST_F(BootstrapLauncherTest, RanksThatHaveGivenUpAndALateOneMeetInLaterCalls) {
  const std::string variables =
      absl::StrCat("TUTTI_STORE=file://", runtime_.path(), " TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_SIZE=1");
  const Output output = RunByHand(2, variables, RankProgram("RankThatRepeats"));
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("<0 after 0>"));
  EXPECT_THAT(output.text, HasSubstr("<1 after 2>"));
}

TEST_F(BootstrapLauncherTest, ARankWhoseJobIsRestartedServesAtItsPortAgain) {
  const JobSecret secret = RandomJobSecret();
  const std::string address = TcpStoreServer::Start({secret, "of a port", 1}).value()->address();
  const std::string variables = absl::StrCat("TUTTI_RENDEZVOUS=", address, " TUTTI_JOB_SECRET=", ToHex(secret),
                                             " TUTTI_LOCAL_RANK=0 TUTTI_LOCAL_SIZE=1");
  const Output output = RunByHand(2, variables, RankProgram("RankWhoseJobIsRestarted"));
  EXPECT_EQ(output.status, 0) << output.text;
}

TEST_F(BootstrapLauncherTest, AThreadWaitsNoLongerThanItsTimeoutForAnother) {
  const Output output = Shell(env_ + "TUTTI_SIZE=2 TUTTI_RANK=0 " + RankProgram("RankWithTwoThreads"));
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_THAT(output.text,
              HasSubstr("another thread of this process still waits for the other ranks of the job after 0"));
}

TEST_F(BootstrapLauncherTest, AChildOfARankIsNoRankAndDisturbsNone) {
  const Output output = RunByHand(2, "", RankProgram("RankThatForks"));
  EXPECT_THAT(output.text, HasSubstr("<child: FAILED_PRECONDITION: this process was forked"));
  EXPECT_EQ(output.status, 0) << output.text;
}

TEST_F(BootstrapLauncherTest, NoTimeoutIsTooLong) {
  for (const char* timeout : {"inf", "1e10", "1e300"}) {
    const Output output = RunByHand(2, absl::StrCat("TUTTI_TIMEOUT=", timeout), RankProgram());
    ExpectRanks(output, "tutti", 2, 2);
  }
}

TEST_F(BootstrapLauncherTest, AStaleRankDoesNotBeatMpirun) {
  if (!HasProgram("mpirun.openmpi")) GTEST_SKIP() << "mpirun.openmpi is not installed";
  const Output output =
      Shell(env_ + "RANK=0 WORLD_SIZE=1 mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 " + RankProgram());
  EXPECT_NE(output.status, 0);
  EXPECT_THAT(output.text, HasSubstr("WORLD_SIZE=1 and OMPI_COMM_WORLD_SIZE=2 disagree"));
}

}  // namespace
}  // namespace tutti
