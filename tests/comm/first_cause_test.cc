#include "comm/first_cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// The first error that `watch` hears within a minute.
absl::Status Hear(CauseWatch& watch) {
  const absl::Time end = absl::Now() + absl::Minutes(1);
  absl::Status heard;
  while (heard.ok() && absl::Now() < end) {
    heard = watch.Look();
    absl::SleepFor(absl::Milliseconds(5));
  }
  return heard;
}

TEST(CauseWatchTest, HearsWhyAnotherRankHasGivenUp) {
  const std::shared_ptr<Store> store = MakeMemoryStore();
  CauseWatch watch(*store);
  const absl::Time begin = absl::Now();
  while (absl::Now() < begin + absl::Seconds(1)) ASSERT_EQ(watch.Look(), absl::OkStatus());
  const absl::Status cause = absl::FailedPreconditionError("rank 1 has no route");
  EXPECT_EQ(FirstCause(*store, 1, cause), cause);
  EXPECT_EQ(Hear(watch), absl::FailedPreconditionError("rank 1 has no route (told by rank 1)"));
}

TEST(CauseWatchTest, HearsOfARankThatIsGone) {
  const JobKey job = {.secret = RandomJobSecret(), .job_id = "job", .size = 2};
  const auto server = TcpStoreServer::Start(job);
  ASSERT_TRUE(server.ok()) << server.status();
  const absl::Time soon = absl::Now() + absl::Minutes(1);
  const auto of_0 = ConnectTcpStore((*server)->address(), job, 0, soon);
  auto of_1 = ConnectTcpStore((*server)->address(), job, 1, soon);
  ASSERT_TRUE(of_0.ok() && of_1.ok());
  ASSERT_TRUE((*of_1)->Set("here", "1", soon).ok());
  CauseWatch watch(**of_0);
  of_1->reset();
  const absl::Status heard = Hear(watch);
  EXPECT_EQ(heard.code(), absl::StatusCode::kUnavailable) << heard;
  EXPECT_THAT(std::string(heard.message()), HasSubstr("rank 1 is gone"));
}

}  // namespace
}  // namespace tutti
