#include <fcntl.h>
#include <sys/file.h>

#include <atomic>
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
