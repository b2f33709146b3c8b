// A server of a process that has too few descriptors is refused, by an error that says what to raise.
#include <sys/resource.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/store/child_process.h"
#include "tutti/store.h"

namespace tutti {
namespace {

TEST(TcpServerLimitsTest, TooFewDescriptorsAreAnErrorThatSaysWhatToRaise) {
  ChildProcess process([](const auto& say) {
    rlimit usual;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
    const JobKey job{RandomJobSecret(), "limits", 1};
    for (rlim_t limit = 3; limit < 30; ++limit) {
      const rlimit few = {limit, usual.rlim_max};
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
      const absl::Status status = TcpStoreServer::Start(job).status();
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);  // sanitizers need descriptors, too
      say(absl::StrCat(status.code() == absl::StatusCode::kOk ? "served" : "", status.message()));
    }
    say("end");
  });
  int refused = 0, served = 0;
  for (std::string line = process.NextLine(); line != "end"; line = process.NextLine()) {
    if (line == "served") {
      ++served;
    } else {
      ++refused;
      ASSERT_THAT(line, testing::AllOf(testing::StartsWith("store server: cannot "),
                                       testing::HasSubstr("Too many open files; raise the limit (ulimit -n)")));
    }
  }
  EXPECT_GE(refused, 3);
  EXPECT_GE(served, 3);
}

}  // namespace
}  // namespace tutti
