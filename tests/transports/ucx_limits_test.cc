// Machines with too little shared memory, address space or descriptors for UCX. The suite's name ends in DeathTest so
// that GoogleTest runs it first: the suite forks before this process has a UCX context.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/descriptors.h"
#include "gmock/gmock.h"
#include "transports/ucx/address.h"
#include "tutti/transport.h"

namespace tutti {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr int kNotPermitted = 77;
constexpr int kRefused = 78;

// Runs `body` in a process of its own, whose limits `body` may lower, and returns the exit code of the process; -1: the
// process did not exit.
int ExitCodeOfAChildThat(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    body();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

absl::Status MakeAndConnect() {
  const auto transport = MakeUcxTransport({}, {.region_bytes = 4096});
  if (!transport.ok()) return transport.status();
  return (*transport)->Connect(0, {*(*transport)->Address()}, absl::Now() + absl::Minutes(1));
}

TEST(UcxLimitsDeathTest, TooFewDescriptorsAreAnErrorThatSaysHowManyAreNeeded) {
  int refused = 0;
  for (const rlim_t limit : {5, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32}) {
    const int code = ExitCodeOfAChildThat([limit] {
      rlimit usual;
      ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
      const rlimit few = {limit, usual.rlim_max};
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
      const absl::Status status = MakeAndConnect();
      // Sanitizers need descriptors, too, for some of their checks.
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
      if (status.ok()) return;
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_THAT(status.message(), HasSubstr("ulimit -n"));
      if (!testing::Test::HasFailure()) _exit(kRefused);
    });
    EXPECT_THAT(code, AnyOf(0, kRefused)) << "limit " << limit;
    if (code == kRefused) ++refused;
  }
  EXPECT_GT(refused, 0);
}

// Connects two ranks of this process, which may open `free` more descriptors, and returns what becomes of rank 0. Each
// takes the other for a rank of its container, or of another one of its node.
absl::Status ConnectWithin(std::size_t free, bool in_one_container) {
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::string> addresses, elsewhere;
  for (Rank rank = 0; rank < 2; ++rank) {
    transports.push_back(MakeUcxTransport({}, {.region_bytes = 4096}).value());
    addresses.push_back(*transports.back()->Address());
    ucx::PeerAddress address = ucx::DecodeAddress(addresses.back()).value();
    if (!in_one_container) address.container += "elsewhere";
    elsewhere.push_back(ucx::Encode(address));
  }
  rlimit usual;
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit few = {OpenDescriptors().size() + free, usual.rlim_max};
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  std::thread other([&] { (void)transports[1]->Connect(1, {elsewhere[0], addresses[1]}, deadline); });
  absl::Status connected = transports[0]->Connect(0, {addresses[0], elsewhere[1]}, deadline);
  other.join();
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  return connected;
}

TEST(UcxLimitsDeathTest, ARankInAnotherContainerOfTheNodeNeedsASocketAndWires) {
  const int code = ExitCodeOfAChildThat([] {
    constexpr std::size_t kInOneContainer = 4 + 2 * 3, kInAnother = 4 + 2 * 3 + 3;  // of each of the two ranks
    EXPECT_EQ(ConnectWithin(2 * kInOneContainer, true), absl::OkStatus());
    EXPECT_EQ(ConnectWithin(2 * kInAnother, false), absl::OkStatus());
    const absl::Status refused = ConnectWithin(kInAnother - 1, false);
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_THAT(refused.message(), HasSubstr(absl::StrCat("a world of 2 ranks needs ", kInAnother, " more")));
  });
  EXPECT_EQ(code, 0);
}

TEST(UcxLimitsDeathTest, TooSmallASharedMemoryIsAnErrorThatSaysHowMuchIsNeeded) {
  const int code = ExitCodeOfAChildThat([] {
    const bool small = unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       mount("none", "/dev/shm", "tmpfs", 0, "size=1m") == 0;
    if (!small) _exit(kNotPermitted);
    const absl::Status status = MakeAndConnect();
    if (status.ok()) return;  // newer versions of UCX do not use a /dev/shm that is too small
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(status.message(), HasSubstr("/dev/shm has 1024 KiB free; each rank of a node needs"));
  });
  if (code == kNotPermitted) GTEST_SKIP() << "this user may not mount a /dev/shm of its own";
  EXPECT_EQ(code, 0);
}

TEST(UcxLimitsDeathTest, ASharedMemoryThatCannotBeWrittenIsAnErrorThatSaysSo) {
  const int code = ExitCodeOfAChildThat([] {
    const bool read_only = unshare(CLONE_NEWNS) == 0 &&
                           mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                           mount("none", "/dev/shm", "tmpfs", MS_RDONLY, nullptr) == 0;
    if (!read_only) _exit(kNotPermitted);
    const absl::Status status = MakeAndConnect();
    if (status.ok()) return;  // newer versions of UCX do not need /dev/shm
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(status.message(), HasSubstr("/dev/shm cannot be written (Read-only file system)"));
  });
  if (code == kNotPermitted) GTEST_SKIP() << "this user may not mount a /dev/shm of its own";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace tutti
