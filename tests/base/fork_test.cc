#include "base/fork.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

namespace tutti {
namespace {

UniqueFd Open() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }
bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

// Calls `holds` in a forked child; true when `holds` returns true there.
template <typename Function>
bool HoldsInChild(const Function& holds) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(holds() ? 0 : 1);
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(UnsharedFdTest, IsOpenInItsProcessAloneUntilItIsDestroyed) {
  std::optional<UnsharedFd> fd(std::in_place, Open());
  const int number = fd->get();
  EXPECT_TRUE(HoldsInChild([&] { return !IsOpen(number); }));
  EXPECT_TRUE(IsOpen(number));
  fd.reset();
  EXPECT_FALSE(IsOpen(number));
}

// The next file with the number of a descriptor that has been closed is one that children may keep.
TEST(UnsharedFdTest, LeavesItsNumberToFilesThatAreShared) {
  const UniqueFd file = Open();
  std::optional<UnsharedFd> fd(std::in_place, Open());
  const int number = fd->get();
  fd.reset();
  const UniqueFd shared(::fcntl(file.get(), F_DUPFD_CLOEXEC, number));
  ASSERT_EQ(shared.get(), number);
  EXPECT_TRUE(HoldsInChild([&] { return IsOpen(number); }));
}

// The number of the parent's descriptor is free in a child, which gives it to a descriptor of its own.
TEST(UnsharedFdTest, OfAParentLeavesTheDescriptorsOfAChildOpen) {
  const UniqueFd file = Open();
  std::optional<UnsharedFd> destroyed(std::in_place, Open());
  UnsharedFd assigned(Open());
  EXPECT_TRUE(HoldsInChild([&] {
    const UnsharedFd first{UniqueFd(::fcntl(file.get(), F_DUPFD_CLOEXEC, destroyed->get()))};
    const UnsharedFd second{UniqueFd(::fcntl(file.get(), F_DUPFD_CLOEXEC, assigned.get()))};
    if (first.get() != destroyed->get() || second.get() != assigned.get()) return false;
    destroyed.reset();
    assigned = UnsharedFd();
    return IsOpen(first.get()) && IsOpen(second.get());
  }));
  EXPECT_TRUE(IsOpen(destroyed->get()) && IsOpen(assigned.get()));
}

// A variable of the parent can get a descriptor of the child, which then owns that descriptor.
TEST(UnsharedFdTest, BelongsToTheProcessThatAssignedIt) {
  UnsharedFd fd;
  EXPECT_TRUE(HoldsInChild([&] {
    fd = UnsharedFd(Open());
    const int number = fd.get();
    if (!HoldsInChild([&] { return !IsOpen(number); }) || !IsOpen(number)) return false;
    fd = UnsharedFd();
    return !IsOpen(number);
  }));
}

}  // namespace
}  // namespace tutti
