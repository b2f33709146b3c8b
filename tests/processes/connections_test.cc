// TUTTI_CONNECTIONS: the number of connections to each rank on another node.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/harness/rank_processes.h"
#include "tests/store/temporary_directory.h"
#include "tutti/bootstrap.h"
#include "tutti/communicator.h"
#include "tutti/store.h"

namespace tutti {
namespace {

int SocketsOfThisProcess() {
  int sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the descriptor by which the directory is read
    if (absl::StartsWith(std::filesystem::read_symlink(entry, gone).string(), "socket:")) ++sockets;
  }
  return sockets;
}

// The sockets of rank 0 of two ranks, each a node of its own, with this TUTTI_CONNECTIONS.
int SocketsWith(const char* connections) {
  const TemporaryDirectory directory;
  RankProcesses ranks(2, [&](Rank rank, Lines& lines) {
    ::setenv("TUTTI_CONNECTIONS", connections, /*overwrite=*/1);
    ::setenv("TUTTI_NODE", absl::StrCat("node ", rank).c_str(), /*overwrite=*/1);
    Bootstrap bootstrap;
    bootstrap.identity.rank = bootstrap.identity.local_rank = rank;
    bootstrap.identity.size = bootstrap.identity.local_size = 2;
    bootstrap.store = MakeFileStore(directory.path(), rank).value();
    const auto world = Communicator::Create(bootstrap, {.timeout = absl::Minutes(1)});
    lines.Say(world.ok() ? absl::StrCat(SocketsOfThisProcess()) : world.status().ToString());
    return world.ok() && (*world)->Barrier().Wait().ok() ? 0 : 1;
  });
  const std::string line = ranks.Hear(0, absl::Now() + absl::Minutes(1)).value_or("");
  int sockets = 0;
  EXPECT_TRUE(absl::SimpleAtoi(line, &sockets)) << line;
  return sockets;
}

TEST(ConnectionsTest, TheVariableSaysHowManyThereAre) { EXPECT_EQ(SocketsWith("5") - SocketsWith("1"), 4); }

}  // namespace
}  // namespace tutti
