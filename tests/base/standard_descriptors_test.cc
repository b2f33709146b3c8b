#include "base/standard_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti {
namespace {

// Calls `holds` in a process of its own, whose exit code is 0 when `holds` returns true.
template <typename Function>
void ExpectInChild(const Function& holds) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(holds() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

bool IsNull(int fd) {
  struct stat null, file;
  return ::stat("/dev/null", &null) == 0 && ::fstat(fd, &file) == 0 && file.st_rdev == null.st_rdev;
}

TEST(HoldStandardDescriptorsTest, WhatIsClosedIsHeldAndWhatIsOpenStays) {
  for (unsigned closed = 0; closed < 8; ++closed) {
    ExpectInChild([closed] {
      const int zero = ::open("/dev/zero", O_RDWR);
      for (int fd = 0; fd < 3; ++fd) ::dup2(zero, fd);
      for (int fd = 0; fd < 3; ++fd) {
        if ((closed >> fd & 1) != 0) ::close(fd);
      }
      HoldStandardDescriptors();
      HoldStandardDescriptors();
      for (int fd = 0; fd < 3; ++fd) {
        if (IsNull(fd) != ((closed >> fd & 1) != 0)) return false;
      }
      return ::open("/dev/zero", O_RDWR) > 2;
    });
  }
}

TEST(HoldStandardDescriptorsTest, TakesNoOtherDescriptor) {
  ExpectInChild([] {
    const int before = ::dup(0);
    ::close(before);
    HoldStandardDescriptors();
    return ::dup(0) == before;
  });
}

}  // namespace
}  // namespace tutti
