// A rank fails while all connect: the others hear its cause, also where the store ends with rank 0, which serves the
// store.
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "tests/transports/wired_world.h"
#include "transports/forwarding.h"
#include "tutti/bootstrap.h"
#include "tutti/communicator.h"
#include "tutti/store.h"

namespace tutti {
namespace {

class CannotConnect final : public ForwardingTransport {
 public:
  explicit CannotConnect(std::unique_ptr<Transport> inner) : ForwardingTransport(std::move(inner)) {}

  absl::Status Connect(Rank rank, absl::Span<const std::string> /*addresses*/, absl::Time /*deadline*/,
                       ConnectWatch /*watch*/) override {
    return absl::FailedPreconditionError(absl::StrCat("rank ", rank, " has no route"));
  }
};

TEST(UcxConnectFailure, IsHeardByAllBeforeRank0EndsTheStore) {
  constexpr int kSize = 3;
  for (const Rank victim : {0, 2}) {
    const JobKey job = {.secret = RandomJobSecret(), .job_id = "job", .size = kSize};
    auto server = TcpStoreServer::Start(job, {.serving_rank = 0});
    ASSERT_TRUE(server.ok()) << server.status();
    const std::string address = (*server)->address();
    std::vector<std::unique_ptr<Transport>> transports = Nodes(1).make(kSize, {});
    const auto run = [&](Rank rank) {
      const auto store = ConnectTcpStore(address, job, rank, absl::Now() + absl::Minutes(1));
      ASSERT_TRUE(store.ok()) << store.status();
      Bootstrap bootstrap;
      bootstrap.identity.rank = bootstrap.identity.local_rank = rank;
      bootstrap.identity.size = bootstrap.identity.local_size = kSize;
      bootstrap.store = *store;
      std::unique_ptr<Transport> transport = std::move(transports[static_cast<std::size_t>(rank)]);
      if (rank == victim) transport = std::make_unique<CannotConnect>(std::move(transport));
      const absl::Status failed =
          Communicator::Create(bootstrap, std::move(transport), {.timeout = absl::Minutes(5)}).status();
      if (rank == 0) server->reset();
      EXPECT_THAT(failed.ToString(), testing::HasSubstr(absl::StrCat("rank ", victim, " has no route")))
          << "rank " << rank;
    };
    std::vector<std::thread> ranks;
    for (Rank rank = 0; rank < kSize; ++rank) ranks.emplace_back(run, rank);
    for (std::thread& rank : ranks) rank.join();
  }
}

}  // namespace
}  // namespace tutti
