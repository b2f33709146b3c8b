#include "base/nearest.h"

#include <vector>

#include "gtest/gtest.h"

namespace tutti {
namespace {

TEST(NearestTest, FindsTheNameWithTheFewestEdits) {
  const std::vector<absl::string_view> names = {"all_gather", "all_reduce", "recv"};
  EXPECT_EQ(Nearest("allreduce", names, 4), "all_reduce");
  EXPECT_EQ(Nearest("allgather", names, 4), "all_gather");
  EXPECT_EQ(Nearest("all_reduce", names, 0), "all_reduce");
  EXPECT_EQ(Nearest("ring", names, 2), "");
  EXPECT_EQ(Nearest("ring", names, 3), "recv");
  EXPECT_EQ(Nearest("ring", {}, 3), "");
}

}  // namespace
}  // namespace tutti
