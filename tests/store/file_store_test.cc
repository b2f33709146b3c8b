#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/harness/stopped_clock.h"
#include "tests/store/child_process.h"
#include "tests/store/temporary_directory.h"
#include "tutti/store.h"

namespace {

// How many more entries this thread reads of a directory before an error; negative: all.
thread_local int entries_until_error = -1;

}  // namespace

// Stands in for the readdir of the C library.
extern "C" __attribute__((visibility("default"))) dirent* readdir(DIR* directory) {
  if (entries_until_error == 0) {
    errno = EIO;
    return nullptr;
  }
  if (entries_until_error > 0) --entries_until_error;
  static const auto real = reinterpret_cast<dirent* (*)(DIR*)>(dlsym(RTLD_NEXT, "readdir"));
  return real(directory);
}

namespace tutti {
namespace {

TEST(FileStoreTest, ATableThatStaysLockedIsNamedInTimeWhateverTheSystemsClockShows) {
  const TemporaryDirectory directory;
  const auto store = MakeFileStore(directory.path()).value();
  const std::string path = absl::StrCat(directory.path(), "/lock");
  const UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  const StoppedClock stopped;
  const absl::Status status = store->Add("count", 1, absl::Now() + absl::Milliseconds(5)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(absl::StrCat("another process keeps ", path)));
}

// "." and "..", and the files of two ranks in any order, one of which is gone: half a listing says nothing.
TEST(FileStoreTest, AListingOfRanksThatBreaksOffCountsForNothing) {
  const TemporaryDirectory directory;
  const auto lives = MakeFileStore(directory.path(), 0).value();
  ChildProcess gone([&](const auto&) { EXPECT_TRUE(MakeFileStore(directory.path(), 1).ok()); });
  EXPECT_EQ(gone.Wait(), 0);
  for (const int entries : {0, 1, 2, 3}) {
    entries_until_error = entries;
    std::vector<Rank> told;
    (void)lives->Get("never", absl::Now() + absl::Milliseconds(1), [&](Rank rank) {
      told.push_back(rank);
      return absl::OkStatus();
    });
    const absl::Status joined = MakeFileStore(directory.path(), 1).status();
    entries_until_error = -1;
    EXPECT_THAT(told, testing::IsEmpty()) << entries;
    EXPECT_EQ(joined.code(), absl::StatusCode::kUnavailable) << joined << ", " << entries;
    EXPECT_THAT(std::string(joined.message()), testing::HasSubstr(absl::StrCat(directory.path(), "/ranks")));
  }
}

// Children that live on are forked while a thread adds, most of them while the thread has the table locked.
TEST(FileStoreTest, NoForkedChildKeepsTheTableLocked) {
  const TemporaryDirectory directory;
  const auto store = MakeFileStore(directory.path()).value();
  std::atomic<bool> over = false;
  std::thread adder([&] {
    absl::Status status;
    while (!over && status.ok()) status = store->Add("count", 1, absl::Now() + absl::Seconds(5)).status();
    EXPECT_TRUE(status.ok()) << status;
  });
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (int i = 0; i < 20; ++i) {
    children.push_back(std::make_unique<ChildProcess>([](const auto&) { ::pause(); }));
  }
  over = true;
  adder.join();
  EXPECT_TRUE(store->Add("count", 1, absl::Now() + absl::Seconds(5)).ok());
}

}  // namespace
}  // namespace tutti
