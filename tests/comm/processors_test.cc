#include "comm/processors.h"

#include <sched.h>

#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace tutti {
namespace {

TEST(ProcessorsTest, OfBoundRanksAreAddedUp) {
  EXPECT_EQ(CountProcessors({"01", "02", "04", "80"}), 4);
  EXPECT_EQ(CountProcessors({"03", "03"}), 2) << "shared processors count once";
  EXPECT_EQ(CountProcessors({"01", "000001"}), 2) << "some ranks may name more processors than others";
  EXPECT_EQ(CountProcessors({"ff", ""}), 0) << "one rank does not know";
  for (const char* wrong : {"0", "xy", "0x01", "01 02"}) EXPECT_EQ(CountProcessors({"01", wrong}), 0) << wrong;
}

TEST(ProcessorsTest, QuotasOfGroupsLimitThem) {
  EXPECT_EQ(CountProcessors({"ff 2 a", "ff 2 a"}), 2) << "ranks of one group share its quota";
  EXPECT_EQ(CountProcessors({"ff 2 a", "ff 3 b"}), 5) << "each group has its own";
  EXPECT_EQ(CountProcessors({"03 9 a"}), 2) << "more than there are processors";
  EXPECT_EQ(CountProcessors({"ff 2 a", "ff"}), 8) << "one rank has no quota";
  EXPECT_EQ(CountProcessors({"ff 3 a 2 b", "ff 3 a 2 c", "ff 3 a 2 d"}), 3) << "no more than the group around them";
  EXPECT_EQ(CountProcessors({"ff 5 a 2 b", "ff 5 a 2 c", "ff 1 d 9 e"}), 5) << "less than the group around them";
  EXPECT_EQ(CountProcessors({"ff 5 a 2 b", "ff 5 a"}), 5) << "one rank is in the outer group alone";
  for (const char* wrong : {"ff x a", "ff  a", "ff 2", "ff 2 a 3"}) EXPECT_EQ(CountProcessors({wrong}), 0) << wrong;
  EXPECT_EQ(CountProcessors({AllowedProcessors({{1, "a"}, {2, "b"}})}), 1);
}

TEST(ProcessorsTest, AThreadThatIsBoundMayRunOnOne) {
  const std::string all = AllowedProcessors({});
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  EXPECT_EQ(CountProcessors({all}), CPU_COUNT(&allowed));
  std::vector<std::string> each;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &allowed)) continue;
    std::thread([&] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(processor, &one);
      ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
      each.push_back(AllowedProcessors({}));
    }).join();
    EXPECT_EQ(CountProcessors({each.back()}), 1);
  }
  EXPECT_EQ(CountProcessors(each), CountProcessors({all}));
}

}  // namespace
}  // namespace tutti
