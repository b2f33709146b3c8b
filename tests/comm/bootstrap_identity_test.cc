#include "comm/bootstrap_identity.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti {
namespace {

using testing::HasSubstr;

// The environments that launchers make; a nested launcher adds its variables to those of the outer one.
const Environment kTorchrun = {{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "node0"},
                               {"MASTER_PORT", "29500"},
                               {"TORCHELASTIC_RUN_ID", "none"},
                               {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_RANK", "3"},
                              {"PMIX_NAMESPACE", "1890844673"}};
const Environment kHydra = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Environment kSlurm = {{"SLURM_JOB_ID", "77"},        {"SLURM_STEP_ID", "0"},
                            {"SLURM_PROCID", "4"},         {"SLURM_NTASKS", "5"},
                            {"SLURM_STEP_NUM_TASKS", "5"}, {"SLURM_LOCALID", "0"},
                            {"SLURM_NODEID", "2"},         {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                            {"SLURM_RESTART_COUNT", "1"},  {"SLURM_STEP_NODELIST", "n[07-08,11]"}};
const Environment kHorovod = {{"HOROVOD_RANK", "0"},
                              {"HOROVOD_SIZE", "2"},
                              {"HOROVOD_LOCAL_RANK", "0"},
                              {"HOROVOD_LOCAL_SIZE", "1"},
                              {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "h"},
                              {"HOROVOD_GLOO_RENDEZVOUS_PORT", "9"}};
const Environment kOwn = {{"TUTTI_RANK", "0"}, {"TUTTI_SIZE", "2"}, {"TUTTI_JOB_ID", "mine"}, {"TUTTI_EPOCH", "3"}};

// The variables that Open MPI 4.1 leaves in a process that no mpirun has started, between MPI_Init and MPI_Finalize.
const Environment kSingleton = {{"PMIX_RANK", "0"},
                                {"PMIX_NAMESPACE", "275120129"},
                                {"OMPI_COMMAND", "./script"},
                                {"OMPI_APP_CTX_NUM_PROCS", "1"},
                                {"OMPI_MCA_ess", "singleton"},
                                {"OMPI_MCA_orte_ess_num_procs", "1"}};

const Environment kByHand = {{"RANK", "3"}, {"WORLD_SIZE", "4"}};

Environment operator+(Environment a, const Environment& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}
Environment Without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

struct Case {
  const char* name;
  Environment environment;
  Identity expected;
};

class IdentityTest : public testing::TestWithParam<Case> {};

TEST_P(IdentityTest, IsReadFromTheEnvironment) {
  absl::StatusOr<Identity> identity = IdentityFrom(GetParam().environment);
  ASSERT_TRUE(identity.ok()) << identity.status();
  const Identity& expected = GetParam().expected;
  if (expected.job_id.empty()) identity->job_id.clear();
  EXPECT_TRUE(*identity == expected) << identity->launcher << " rank " << identity->rank << "/" << identity->size
                                     << " local " << identity->local_rank << "/" << identity->local_size << " epoch "
                                     << identity->epoch << " job " << identity->job_id;
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, IdentityTest,
    testing::Values(
        Case{"Nothing", {}, {0, 1, 0, 1, "single", "single", 0}},
        Case{"Torchrun",
             kTorchrun + Environment{{"WORLD_SIZE", "8"}, {"LOCAL_RANK", "5"}, {"LOCAL_WORLD_SIZE", "8"}},
             {5, 8, 5, 8, "torchrun none 29500", "torchrun", 2}},
        Case{
            "AgentsOfTorchrunThatCountTheirOwnRestarts", kTorchrun, {5, 8, 1, 4, "torchrun none 29500", "torchrun", 0}},
        Case{"RanksByHandAreOnOneNode",
             {{"RANK", "1"}, {"WORLD_SIZE", "2"}},
             {1, 2, 1, 2, "", "torchrun", 0, false, true}},
        Case{"RanksByHandWithALoopbackMaster",
             {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}},
             {1, 2, 1, 2, "torchrun  29500", "torchrun", 0, false, true}},
        Case{"RanksByAnOperatorOfKubernetes",
             {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}},
             {1, 2, 0, 1, "torchrun  23456", "torchrun", 0, true}},
        Case{"OneRankByAnOperatorOfKubernetes",
             {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "job-master-0"}},
             {0, 1, 0, 1, "", "torchrun", 0}},
        Case{"RanksByHandThatMeetInADirectory",
             kByHand + Environment{{"TUTTI_STORE", "file:///job"}},
             {3, 4, 0, 1, "", "torchrun", 0, true}},
        Case{"OwnWithARendezvous",
             kOwn + Environment{{"TUTTI_RENDEZVOUS", "node0:29400"}},
             {0, 2, 0, 1, "mine", "tutti", 3, true}},
        Case{"OwnWithARendezvousOnThisNode",
             kOwn + Environment{{"TUTTI_RENDEZVOUS", "[::1]:29400"}},
             {0, 2, 0, 2, "mine", "tutti", 3, false, true}},
        Case{"OwnWithARendezvousAtLocalhost",
             kOwn + Environment{{"TUTTI_RENDEZVOUS", "localhost:29400"}},
             {0, 2, 0, 2, "mine", "tutti", 3, false, true}},
        Case{"OwnWithARendezvousAndAPlace",
             kOwn + Environment{{"TUTTI_RENDEZVOUS", "node0:1"}, {"TUTTI_LOCAL_RANK", "0"}, {"TUTTI_LOCAL_SIZE", "2"}},
             {0, 2, 0, 2, "mine", "tutti", 3}},
        Case{"RanksByHandThatRepeatWhatMpirunSays", kOpenMpi + kByHand, {3, 4, 3, 4, "", "torchrun", 0, false, true}},
        Case{"RanksByHandInAShellThatSrunHolds",
             kByHand + Environment{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}},
             {3, 4, 3, 4, "", "torchrun", 0, false, true}},
        Case{"OpenMpi", kOpenMpi, {3, 4, 1, 2, "openmpi 1890844673 ", "openmpi", 0}},
        Case{"Hydra", kHydra, {1, 2, 1, 2, "", "pmi", 0}},
        Case{"PmiThatDoesNotCountTheNodesRanks",
             {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
             {1, 2, 1, 2, "", "pmi", 0, false, true}},
        Case{"Slurm", kSlurm, {4, 5, 0, 1, "slurm 77.0", "slurm", 1}},
        Case{"Horovod", kHorovod, {0, 2, 0, 1, "horovod h:9", "horovod", 0}},
        Case{"Own", kOwn, {0, 2, 0, 2, "mine", "tutti", 3, false, true}},
        Case{"OwnBeforeTorchrun", kTorchrun + kOwn, {0, 2, 0, 2, "mine", "tutti", 3, false, true}},
        Case{"TorchrunInsideSrun", kSlurm + kTorchrun, {5, 8, 1, 4, "torchrun none 29500", "torchrun", 0}},
        Case{"MpirunInsideSlurm", kSlurm + kOpenMpi, {3, 4, 1, 2, "openmpi 1890844673 ", "openmpi", 0}},
        Case{"HydraInsideSlurm", kSlurm + kHydra, {1, 2, 1, 2, "", "pmi", 0}},
        Case{"SrunThatServesPmix", kSlurm + Environment{{"PMIX_RANK", "4"}}, {4, 5, 0, 1, "slurm 77.0", "slurm", 1}},
        Case{"SrunThatServesPmi",
             kSlurm + Environment{{"PMI_RANK", "4"}, {"PMI_SIZE", "5"}},
             {4, 5, 0, 1, "slurm 77.0", "slurm", 1}},
        Case{"BatchScriptOutsideAStep", Without(kSlurm, "SLURM_STEP_ID"), {0, 1, 0, 1, "single", "single", 0}},
        Case{"SingletonOfOpenMpi", kSingleton, {0, 1, 0, 1, "single", "single", 0}},
        Case{"SingletonOfOpenMpiThatTellsItsRankAlone", {{"PMIX_RANK", "0"}}, {0, 1, 0, 1, "single", "single", 0}},
        Case{"SingletonOfOpenMpiInAStepOfSlurm", kSlurm + kSingleton, {4, 5, 0, 1, "slurm 77.0", "slurm", 1}},
        Case{"SingletonOfOpenMpiUnderHydra", kHydra + kSingleton, {1, 2, 1, 2, "", "pmi", 0}},
        Case{"SingletonOfOpenMpiWithRanksByHand", kByHand + kSingleton, {3, 4, 3, 4, "", "torchrun", 0, false, true}},
        Case{"JobIdIsOverridden", kOpenMpi + Environment{{"TUTTI_JOB_ID", "x"}}, {3, 4, 1, 2, "x", "openmpi", 0}}),
    [](const auto& test) { return test.param.name; });

TEST(CheckOtherLaunchersTest, ComparesWithEveryLauncher) {
  EXPECT_TRUE(CheckOtherLaunchers({}, 0, 1).ok());
  EXPECT_TRUE(CheckOtherLaunchers(kOpenMpi, 3, 4).ok());
  for (const Environment& by : {kTorchrun, Environment{{"RAY_JOB_ID", "1"}}}) {  // inside another launcher's job
    EXPECT_TRUE(CheckOtherLaunchers(kOpenMpi + by, 0, 1).ok());
  }
  const absl::Status rank = CheckOtherLaunchers(kOpenMpi, 2, 4);
  EXPECT_THAT(std::string(rank.message()), HasSubstr("RANK=2 and OMPI_COMM_WORLD_RANK=3 disagree"));
  const absl::Status size = CheckOtherLaunchers(kOwn, 0, 1);
  EXPECT_THAT(std::string(size.message()), HasSubstr("WORLD_SIZE=1 and TUTTI_SIZE=2 disagree"));
}

TEST(IdentityErrorTest, NamesTheVariable) {
  const struct {
    Environment environment;
    const char* message;
  } kCases[] = {
      {kTorchrun + Environment{{"RANK", "abc"}}, "RANK=abc: expected an integer"},
      {kTorchrun + Environment{{"RANK", "8"}}, "RANK=8 is not below WORLD_SIZE=8"},
      {kTorchrun + Environment{{"RANK", "-1"}}, "RANK=-1"},
      {kTorchrun + Environment{{"WORLD_SIZE", "0"}}, "WORLD_SIZE=0: expected at least 1"},
      {kTorchrun + Environment{{"WORLD_SIZE", "99999999999"}}, "WORLD_SIZE=99999999999: expected an integer"},
      {Without(kTorchrun, "WORLD_SIZE"), "RANK is set, but WORLD_SIZE is not"},
      {Without(kTorchrun, "RANK"), "WORLD_SIZE is set, but RANK is not"},
      {Without(kTorchrun, "LOCAL_WORLD_SIZE"), "LOCAL_RANK is set, but LOCAL_WORLD_SIZE is not"},
      {kTorchrun + Environment{{"LOCAL_RANK", "4"}}, "LOCAL_RANK=4 is not below LOCAL_WORLD_SIZE=4"},
      {kTorchrun + Environment{{"LOCAL_WORLD_SIZE", "9"}}, "LOCAL_WORLD_SIZE=9 is more than WORLD_SIZE=8"},
      {kTorchrun + Environment{{"TORCHELASTIC_RESTART_COUNT", "x"}}, "TORCHELASTIC_RESTART_COUNT=x"},
      {Without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE is not"},
      {Without(kHydra, "PMI_SIZE"), "PMI_SIZE is not"},
      {Environment{{"PMIX_RANK", "1"}}, "set TUTTI_RANK and TUTTI_SIZE"},
      {Environment{{"PMIX_RANK", "0"}, {"PRTE_LAUNCHED", "1"}}, "PMIX_RANK=0 is set, but no variable tells the number"},
      {kSlurm + Environment{{"SLURM_STEP_TASKS_PER_NODE", "2(x2"}}, "SLURM_STEP_TASKS_PER_NODE=2(x2"},
      {kSlurm + Environment{{"SLURM_LOCALID", "7"}}, "SLURM_LOCALID"},
      {Without(kHorovod, "HOROVOD_SIZE"), "HOROVOD_SIZE is not"},
      {kOpenMpi + kByHand + Environment{{"RANK", "0"}}, "RANK=0 and OMPI_COMM_WORLD_RANK=3 disagree"},
      {kOpenMpi + kByHand + Environment{{"WORLD_SIZE", "8"}}, "WORLD_SIZE=8 and OMPI_COMM_WORLD_SIZE=4 disagree"},
      {kHydra + kByHand, "RANK=3 and PMI_RANK=1 disagree: unset RANK and WORLD_SIZE to go by pmi"},
      {kSlurm + kByHand, "RANK=3 and SLURM_PROCID=4 disagree"},
      {kHorovod + kByHand, "RANK=3 and HOROVOD_RANK=0 disagree"},
      {kByHand + Environment{{"PMIX_RANK", "1"}}, "RANK=3 and PMIX_RANK=1 disagree"},
      {kByHand + Environment{{"MASTER_PORT", "abc"}}, "MASTER_PORT=abc: expected a port from 1 to 65534"},
      {kTorchrun + Environment{{"MASTER_PORT", "65535"}}, "MASTER_PORT=65535: expected a port"},
      {kOwn + Environment{{"TUTTI_RANK", "2"}}, "TUTTI_RANK=2 is not below TUTTI_SIZE=2"},
      {kOwn + Environment{{"TUTTI_RANK", "two"}}, "TUTTI_RANK=two: expected an integer"},
  };
  for (const auto& [environment, message] : kCases) {
    absl::Status status = IdentityFrom(environment).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

TEST(SlurmHostTest, TheFirstOfANodeList) {
  EXPECT_EQ(FirstSlurmHost("n1"), "n1");
  EXPECT_EQ(FirstSlurmHost("n1,n2"), "n1");
  EXPECT_EQ(FirstSlurmHost("n[003-007,9],m1"), "n003");
  EXPECT_EQ(FirstSlurmHost("n[5,7]-ib"), "n5-ib");
  EXPECT_EQ(FirstSlurmHost("n1,m[1-2]"), "n1");
  EXPECT_EQ(FirstSlurmHost("rack[0-3]_blade[2-7]"), "rack0_blade2");
  EXPECT_EQ(FirstSlurmHost("n[1-2]r[3,5],m"), "n1r3");
  EXPECT_EQ(FirstSlurmHost("n[1"), "n1");
  EXPECT_EQ(FirstSlurmHost(""), "");
}

}  // namespace
}  // namespace tutti
