#include "store/tcp_client.h"

#include <pthread.h>

#include <string>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tutti/store.h"

namespace tutti {
namespace {

std::int64_t SoonNanos() { return NanosIn(absl::Seconds(60)); }

// No thread can be started: each would have a stack of more memory than a process can address.
TEST(TcpClientTest, NoThreadIsAnErrorThatSaysWhatToRaise) {
  const JobKey job{RandomJobSecret(), "threads", 1};
  const auto server = TcpStoreServer::Start(job).value();
  pthread_attr_t usual, too_large;
  ASSERT_EQ(::pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(::pthread_getattr_default_np(&too_large), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&too_large, std::size_t{1} << 48), 0);
  ASSERT_EQ(::pthread_setattr_default_np(&too_large), 0);
  const absl::Status status = TryTcpStore(server->address(), job, 0, SoonNanos()).status();
  ASSERT_EQ(::pthread_setattr_default_np(&usual), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("; raise the limit (ulimit -u)"));
  EXPECT_TRUE(TryTcpStore(server->address(), job, 0, SoonNanos()).ok());
}

}  // namespace
}  // namespace tutti
