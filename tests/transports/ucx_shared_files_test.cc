#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "transports/ucx/shared_files.h"
#include "tutti/transport.h"

namespace tutti::ucx {
namespace {

using testing::ElementsAre;

std::set<std::string> NamesIn(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

TEST(SharedFilesTest, WhatDeadProcessesLeftIsSweptAndNothingElse) {
  std::string directory = testing::TempDir() + "/shared_files_XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  for (const char* name : {"ucx_shm_posix_1", "ucx_shm_posix_2", "of_a_user"}) {
    std::ofstream(directory + "/" + name) << "x";
  }
  const timespec long_ago[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
  for (const char* name : {"ucx_shm_posix_1", "of_a_user"}) {
    ASSERT_EQ(utimensat(AT_FDCWD, (directory + "/" + name).c_str(), long_ago, 0), 0);
  }
  SweepSharedFiles(directory, absl::Minutes(1));
  EXPECT_THAT(NamesIn(directory), ElementsAre("of_a_user", "ucx_shm_posix_2"));
  std::filesystem::remove_all(directory);
  SweepSharedFiles(directory, absl::Minutes(1));  // a directory that is not there is empty
}

TEST(SharedFilesTest, UcxMakesItsFilesInADirectoryOfThisUserAlone) {
  const auto transport = MakeUcxTransport({}, {.region_bytes = 4096});
  ASSERT_TRUE(transport.ok()) << transport.status();
  ASSERT_TRUE((*transport)->Address().ok());
  const std::string directory = DirectoryOfSharedFiles();
  ASSERT_NE(directory, "");
  EXPECT_STREQ(getenv("UCX_POSIX_DIR"), directory.c_str());
  struct stat info;
  ASSERT_EQ(stat(directory.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  // UCX has made the memory of this process as a file in the directory, and keeps the file open.
  bool found = false;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    found |= std::filesystem::read_symlink(entry, gone).native().rfind(directory + "/ucx_shm_posix_", 0) == 0;
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace tutti::ucx
