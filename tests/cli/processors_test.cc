#include "bindings/cli/processors.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/command_run.h"

namespace tutti::cli {
namespace {

int Processors() {
  cpu_set_t all;
  return ::sched_getaffinity(0, sizeof(all), &all) == 0 ? CPU_COUNT(&all) : 0;
}

TEST(ProcessorsTest, TheNameIsThatOfTheFirstProcessorThatHasOne) {
  const auto name_in = [](const std::string& text) {
    std::istringstream cpuinfo(text);
    return ProcessorName(cpuinfo);
  };
  EXPECT_EQ(name_in("processor\t: 0\nmodel name\t: Fast: 3 GHz\nmodel name\t: Slow\n"), "Fast: 3 GHz");
  EXPECT_EQ(name_in("model name\t:\nmodel name\t: Slow\n"), "Slow");
  for (const char* unnamed : {"", "model name", "model name\t:", "model name\t: ", "processor: 0\n"}) {
    EXPECT_EQ(name_in(unnamed), "unknown processor") << unnamed;
  }
}

TEST(ProcessorsTest, EveryProcessorIsInOneShare) {
  for (int ranks = 1; ranks <= std::min(Processors(), 9); ++ranks) {
    const std::vector<cpu_set_t> shares = SharesOfProcessors(ranks).value();
    ASSERT_EQ(shares.size(), static_cast<std::size_t>(ranks));
    cpu_set_t seen;
    CPU_ZERO(&seen);
    int count = 0;
    for (const cpu_set_t& share : shares) {
      EXPECT_THAT(CPU_COUNT(&share), testing::AnyOf(Processors() / ranks, Processors() / ranks + 1));
      count += CPU_COUNT(&share);
      CPU_OR(&seen, &seen, &share);
    }
    EXPECT_EQ(count, Processors());
    EXPECT_EQ(CPU_COUNT(&seen), Processors());
  }
}

TEST(ProcessorsTest, MoreRanksThanProcessorsAreRefused) {
  const int ranks = Processors() + 1;
  EXPECT_THAT(SharesOfProcessors(ranks).status().message(),
              testing::HasSubstr(absl::StrCat("--bind: ", ranks,
                                              " ranks of this machine need a processor each, and this "
                                              "process may run on ",
                                              ranks - 1, " only: leave --bind out")));
  const CommandRun run = RunTutti(absl::StrCat("launch --bind -n ", ranks, " -- true"));
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, testing::HasSubstr("need a processor each"));
}

TEST(ProcessorsTest, LaunchBindsItsRanks) {
  const int ranks = std::min(Processors(), 4);
  const CommandRun run =
      RunTutti(absl::StrCat("launch --bind --tag-output -n ", ranks,
                            " -- sh -c 'grep -c \"Cpus_allowed_list:.[0-9]*$\" /proc/self/status; true'"));
  const std::vector<cpu_set_t> shares = SharesOfProcessors(ranks).value();
  for (int rank = 0; rank < ranks; ++rank) {
    const int own = CPU_COUNT(&shares[static_cast<std::size_t>(rank)]);
    EXPECT_THAT(run.out, testing::HasSubstr(absl::StrCat("[", rank, "] ", own == 1 ? 1 : 0, "\n"))) << run.err;
  }
}

TEST(ProcessorsTest, AProcessBindsItself) {
  std::thread bound([] {
    ASSERT_TRUE(BindToShare(0, Processors()).ok());
    EXPECT_EQ(Processors(), 1);
  });
  bound.join();
}

TEST(ProcessorsTest, ThreadsOfBenchAreNotBound) {
  const CommandRun run = RunTutti("bench all_reduce --bind --transport inproc -b 4 -e 4 --iters 2");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, testing::HasSubstr("--bind is for processes, and --transport inproc has threads of one"));
}

}  // namespace
}  // namespace tutti::cli
