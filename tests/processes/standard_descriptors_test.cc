// Ranks that were started without standard input, output and error, as some daemons start programs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/harness/rank_processes.h"
#include "tutti/transport.h"

namespace tutti {
namespace {

TEST(StandardDescriptorsTest, ATransportNeverTakesTheirPlace) {
  RankProcesses ranks(1, [](Rank, Lines& lines) {
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    const auto transport = MakeUcxTransport({}, {.region_bytes = 4096});
    if (!transport.ok()) lines.Say(transport.status().ToString());
    for (int fd = 0; fd < 3; ++fd) lines.Say(std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", fd)));
    return 0;
  });
  for (int fd = 0; fd < 3; ++fd) EXPECT_EQ(ranks.Hear(0, absl::Now() + absl::Seconds(60)), "/dev/null");
}

}  // namespace
}  // namespace tutti
