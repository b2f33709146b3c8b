#include <fcntl.h>
#include <sys/file.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/harness/stopped_clock.h"
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

}  // namespace
}  // namespace tutti
