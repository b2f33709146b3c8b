// A rank that fails in the set-up by itself, and whose thread lives on, ends the set-up of the others with its cause.
// The store is one that hears of no rank's end, as that of PyTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/harness/world.h"
#include "tutti/bootstrap.h"
#include "tutti/communicator.h"
#include "tutti/transport.h"

namespace tutti {
namespace {

constexpr int kSize = 3;

// A call of Communicator::Create: all ranks make the same one, but for the rank that fails.
using Create = std::function<absl::Status(const Bootstrap& bootstrap, std::unique_ptr<Transport> transport)>;

absl::Status CreateWell(const Bootstrap& bootstrap, std::unique_ptr<Transport> transport) {
  return Communicator::Create(bootstrap, std::move(transport), {.timeout = absl::InfiniteDuration()}).status();
}

struct Case {
  std::string name = {};
  Create fail = nullptr;
  Create create = CreateWell;
  bool has_route = false;  // the ranks have to tell each other their places first
  std::string exchange = {};
  std::string cause = {};
};

class CommunicatorSetUpFailure : public ::testing::TestWithParam<Case> {
 public:
  // The status of every rank, of which `failing` alone fails by itself.
  static std::vector<absl::Status> Run(Rank failing, Rank late) {
    const Case& test = GetParam();
    const std::shared_ptr<Store> store = MakeMemoryStore();
    const std::shared_ptr<InprocHub> hub = MakeInprocHub(kSize);
    std::vector<absl::Status> statuses(kSize);
    std::vector<std::thread> ranks;
    for (Rank rank = 0; rank < kSize; ++rank) {
      if (rank == late) {
        for (std::thread& other : ranks) other.join();
        ranks.clear();
      }
      ranks.emplace_back([&, rank] {
        Bootstrap bootstrap = {.identity = {.rank = rank, .size = kSize, .local_rank = rank, .local_size = kSize},
                               .store = store};
        if (test.has_route) bootstrap.route = Route{.host = "127.0.0.1"};
        const std::int64_t bytes = 1 << 20;
        std::unique_ptr<Transport> transport = MakeInprocTransport(hub, {.region_bytes = bytes}).value();
        statuses[rank] = (rank == failing ? test.fail : test.create)(bootstrap, std::move(transport));
      });
    }
    for (std::thread& rank : ranks) rank.join();
    return statuses;
  }
};

TEST_P(CommunicatorSetUpFailure, OfOneRankEndsAllRanksAtOnce) {
  for (Rank failing = 0; failing < kSize; ++failing) {
    const std::vector<absl::Status> statuses = Run(failing, /*late=*/kSize);
    const std::string cause(statuses[failing].message());
    EXPECT_THAT(cause, testing::HasSubstr(GetParam().cause));
    for (Rank rank = 0; rank < kSize; ++rank) {
      if (rank == failing) continue;
      EXPECT_EQ(statuses[rank],
                absl::UnavailableError(absl::StrCat("exchange '", GetParam().exchange, "' of 3 ranks: rank ", failing,
                                                    " has given up: ", cause)));
    }
  }
}

// Failures before the first meeting of the ranks.
using CommunicatorEarlySetUpFailure = CommunicatorSetUpFailure;

TEST_P(CommunicatorEarlySetUpFailure, EndsARankThatComesLater) {
  for (Rank failing : {0, 1}) {
    const std::vector<absl::Status> statuses = Run(failing, /*late=*/2);
    EXPECT_EQ(statuses[2].code(), absl::StatusCode::kUnavailable) << statuses[2];
    EXPECT_THAT(std::string(statuses[2].message()),
                testing::HasSubstr(absl::StrCat("rank ", failing, " has given up: ")));
  }
}

absl::Status CreateWithAWrongSchedule(const Bootstrap& bootstrap, std::unique_ptr<Transport> transport) {
  return Communicator::Create(bootstrap, std::move(transport), {.schedules = "all_reduce=rign"}).status();
}

absl::Status CreateWithoutATransport(const Bootstrap& bootstrap, std::unique_ptr<Transport>) {
  return Communicator::Create(bootstrap, nullptr).status();
}

absl::Status CreateWithTheTransportOfTheEnvironment(const Bootstrap& bootstrap, std::unique_ptr<Transport>) {
  return Communicator::Create(bootstrap, {.timeout = absl::InfiniteDuration()}).status();
}

absl::Status CreateWithoutRoom(const Bootstrap& bootstrap, std::unique_ptr<Transport>) {
  std::unique_ptr<Transport> small = MakeInprocTransport(MakeInprocHub(kSize), {.region_bytes = 64}).value();
  return Communicator::Create(bootstrap, std::move(small)).status();
}

std::vector<Case> EarlyCases() {
  std::vector<Case> cases = {{.name = "options",
                              .fail = CreateWithAWrongSchedule,
                              .exchange = "agreement/communicator",
                              .cause = "schedules=all_reduce=rign: "},
                             {.name = "transport",
                              .fail = CreateWithoutATransport,
                              .exchange = "agreement/communicator",
                              .cause = "transport is null"}};
  const std::vector<std::string> transports = WorldTransports();
  if (std::find(transports.begin(), transports.end(), "ucx") != transports.end()) {
    cases.push_back({.name = "before_places",
                     .fail = CreateWithoutATransport,
                     .create = CreateWithTheTransportOfTheEnvironment,
                     .has_route = true,
                     .exchange = "places of nodes",
                     .cause = "transport is null"});
  }
  return cases;
}

std::vector<Case> AllCases() {
  std::vector<Case> cases = EarlyCases();
  cases.push_back({.name = "arena", .fail = CreateWithoutRoom, .exchange = "address", .cause = "TUTTI_ARENA_BYTES"});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, CommunicatorSetUpFailure, ::testing::ValuesIn(AllCases()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(, CommunicatorEarlySetUpFailure, ::testing::ValuesIn(EarlyCases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tutti
