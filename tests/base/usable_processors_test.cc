#include "base/usable_processors.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::Not;

// A machine's folders with the files that a test names.
class Machine {
 public:
  explicit Machine(const std::map<std::string, std::string>& files) {
    const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::path(testing::TempDir()) / ("tutti-" + std::to_string(getpid()) + "-" + info->name());
    std::filesystem::remove_all(root_);
    for (const auto& [path, text] : files) {
      std::filesystem::create_directories((root_ / path).parent_path());
      std::ofstream(root_ / path) << text;
    }
  }
  ~Machine() { std::filesystem::remove_all(root_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  std::string root() const { return root_.string(); }
  // The processors that the quotas are worth, from that of the outermost group on.
  std::vector<int> Quotas() const {
    std::vector<int> processors;
    for (const ProcessorQuota& quota : QuotasOfProcess(root())) processors.push_back(quota.processors);
    return processors;
  }
  // The processors that the only quota is worth; 0: there is none.
  int Quota() const {
    const std::vector<int> quotas = Quotas();
    EXPECT_LE(quotas.size(), 1U);
    return quotas.empty() ? 0 : quotas[0];
  }

 private:
  std::filesystem::path root_;
};

const std::string kGroup = "proc/self/cgroup";
const std::string kMount = "sys/fs/cgroup/";

TEST(UsableProcessorsTest, AQuotaIsRoundedUpToWholeProcessors) {
  for (const auto& [limit, processors] : std::map<std::string, int>{
           {"200000 100000", 2}, {"150000 100000", 2}, {"1000 100000", 1}, {"max 100000", 0}, {"", 0}, {"7", 0}}) {
    EXPECT_EQ(Machine({{kGroup, "0::/a.slice/b\n"}, {kMount + "a.slice/b/cpu.max", limit}}).Quota(), processors)
        << limit;
  }
}

TEST(UsableProcessorsTest, TheLimitsOfAllGroupsAroundThisOneCount) {
  const std::string ancestor = kMount + "a/cpu.max", own = kMount + "a/b/cpu.max";
  const auto in = [&](const std::string& of_ancestor, const std::string& of_own) {
    return Machine({{kGroup, "0::/a/b\n"}, {ancestor, of_ancestor + " 100000"}, {own, of_own + " 100000"}}).Quotas();
  };
  EXPECT_THAT(in("200000", "800000"), ElementsAre(2, 8));
  EXPECT_THAT(in("800000", "200000"), ElementsAre(8, 2));
  EXPECT_THAT(in("200000", "max"), ElementsAre(2));
}

// Processes that share a limit are told from those that have one each.
TEST(UsableProcessorsTest, GroupsHaveNames) {
  const Machine machine({{kMount + "a/cpu.max", "200000 100000"},
                         {kMount + "a/b/cpu.max", "200000 100000"},
                         {kMount + "a/c..d/cpu.max", "100000 100000"},
                         {kGroup, ""}});
  const auto groups_in = [&](const std::string& path) {
    std::ofstream(machine.root() + "/" + kGroup) << "0::" << path << "\n";
    std::vector<std::string> groups;
    for (const ProcessorQuota& quota : QuotasOfProcess(machine.root())) groups.push_back(quota.group);
    return groups;
  };
  const std::vector<std::string> one = groups_in("/a/b"), other = groups_in("/a/c..d");
  EXPECT_THAT(one, ElementsAre(groups_in("/a")[0], Not(other.at(1))));
  EXPECT_THAT(other, ElementsAre(one[0], Not(one[0])));
}

// A container sees its own group at the mount point, and perhaps its path on the host, or a path outside of it.
TEST(UsableProcessorsTest, AContainerHasItsGroupAtTheMountPoint) {
  for (const char* path : {"/", "/docker/0123", "/../../other"}) {
    EXPECT_EQ(Machine({{kGroup, std::string("0::") + path + "\n"}, {kMount + "cpu.max", "300000 100000"}}).Quota(), 3)
        << path;
  }
}

TEST(UsableProcessorsTest, TheFirstVersionOfGroupsHasAFileForEachNumber) {
  const std::string groups = "5:memory:/m\n4:cpu,cpuacct:/a/b\n3:cpuset:/\n0::/\n";
  const std::string quota = kMount + "cpu/a/cpu.cfs_quota_us", period = kMount + "cpu/a/cpu.cfs_period_us";
  EXPECT_EQ(Machine({{kGroup, groups}, {quota, "250000"}, {period, "100000"}}).Quota(), 3);
  EXPECT_EQ(Machine({{kGroup, groups}, {quota, "-1"}, {period, "100000"}}).Quota(), 0);
  EXPECT_EQ(Machine({{kGroup, "3:cpuset:/a\n"}, {quota, "250000"}, {period, "100000"}}).Quota(), 0);
}

TEST(UsableProcessorsTest, WithoutGroupsThereIsNoQuota) {
  EXPECT_EQ(Machine({}).Quota(), 0);
  EXPECT_EQ(Machine({{kGroup, "no group\n0::a\n"}}).Quota(), 0);
}

TEST(UsableProcessorsTest, AQuotaLimitsTheProcessorsOfAThread) {
  const int without = UsableProcessors(Machine({}).root());
  EXPECT_GE(without, 1);
  EXPECT_EQ(UsableProcessors(Machine({{kGroup, "0::/\n"}, {kMount + "cpu.max", "100000 100000"}}).root()), 1);
  EXPECT_EQ(UsableProcessors(Machine({{kGroup, "0::/\n"}, {kMount + "cpu.max", "90000000000 1"}}).root()), without);
}

}  // namespace
}  // namespace tutti
