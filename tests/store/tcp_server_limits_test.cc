// A server of a process that has too few descriptors is refused, by an error that says what to raise; a server that has
// too few later on says so.
#include <sys/resource.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/harness/descriptor_limit.h"
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
      ASSERT_THAT(line,
                  testing::AnyOf(testing::AllOf(testing::StartsWith("store server: cannot "),
                                                testing::HasSubstr("Too many open files; raise the limit (ulimit -n)")),
                                 testing::StartsWith("the store server of 1 rank needs 3 more file descriptors; ")));
    }
  }
  EXPECT_GE(refused, 3);
  EXPECT_GE(served, 3);
}

TEST(TcpServerLimitsTest, AJobOfMoreRanksThanDescriptorsIsRefused) {
  ChildProcess process([](const auto& say) {
    absl::Status status;
    {
      const DescriptorLimit few(100);
      status = TcpStoreServer::Start({RandomJobSecret(), "limits", 1000}).status();
    }
    say(absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message()));
  });
  EXPECT_THAT(process.NextLine(),
              testing::ContainsRegex("^RESOURCE_EXHAUSTED: the store server of 1000 ranks needs 1002 "
                                     "more file descriptors; of the limit of .*ulimit -n"));
}

// The child has no descriptor for the connection that this process makes, says so on stderr, and serves later.
TEST(TcpServerLimitsTest, AServerThatCannotAcceptSaysSo) {
  const JobKey job{RandomJobSecret(), "limits", 1};
  ChildProcess process([&](const auto& say) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    ASSERT_GE(::dup2(ends[1], STDERR_FILENO), 0);
    const auto server = TcpStoreServer::Start(job).value();
    std::string told;
    {
      const DescriptorLimit none(0);
      say(server->address());
      for (char c = 0; c != '\n' && ::read(ends[0], &c, 1) == 1;) told.push_back(c);
    }
    say(told.substr(0, told.size() - 1));
    ::pause();
  });
  const std::string address = process.NextLine();
  absl::Status joined;
  std::thread rank([&] { joined = ConnectTcpStore(address, job, 0, absl::Now() + absl::Seconds(60)).status(); });
  EXPECT_EQ(process.NextLine(), absl::StrCat("tutti: ", address, ": store server: cannot accept a connection yet: Too ",
                                             "many open files; raise the limit (ulimit -n)"));
  rank.join();
  EXPECT_TRUE(joined.ok()) << joined;
}

}  // namespace
}  // namespace tutti
