// How the ranks of a round become a world.
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/churn/rank.h"
#include "tutti/bootstrap.h"
#include "tutti/store.h"
#include "tutti/transport.h"

namespace tutti::churn {
namespace {

constexpr std::int64_t kRegionBytes = std::int64_t{1} << 30;

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const Round& round, Rank rank, const Threads* threads) {
  const TransportOptions options = {.region_bytes = kRegionBytes};
  if (threads != nullptr) return MakeInprocTransport(threads->hub, options);
  UcxOptions ucx;
  if (round.path == Path::kTcp) ucx.node = absl::StrCat("node ", rank);
  return MakeUcxTransport(ucx, options);
}

absl::StatusOr<Bootstrap> Meet(const Round& round, Rank rank, const Threads* threads) {
  if (threads == nullptr) return BootstrapFromEnvironment(round.timeout);
  Bootstrap bootstrap;
  bootstrap.identity.rank = bootstrap.identity.local_rank = rank;
  bootstrap.identity.size = bootstrap.identity.local_size = round.ranks;
  bootstrap.store = threads->store;
  return bootstrap;
}

}  // namespace

void BecomeRank(const Round& round, Rank rank, const Meeting& meeting) {
  constexpr int kReplace = 1;
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), kReplace); };
  set("XDG_RUNTIME_DIR", meeting.directory);
  set("TUTTI_JOB_ID", meeting.job);
  for (const char* name : {"TUTTI_RANK", "TUTTI_LOCAL_RANK"}) set(name, absl::StrCat(rank));
  for (const char* name : {"TUTTI_SIZE", "TUTTI_LOCAL_SIZE"}) set(name, absl::StrCat(round.ranks));
}

absl::StatusOr<std::unique_ptr<Communicator>> Join(const Round& round, Rank rank, const Threads* threads) {
  CommunicatorOptions options = {.timeout = round.timeout};
  if (round.path == Path::kSharedMemory) options.mapping = CommunicatorOptions::Mapping::kNever;
  absl::StatusOr<Bootstrap> bootstrap = Meet(round, rank, threads);
  if (!bootstrap.ok()) return bootstrap.status();
  absl::StatusOr<std::unique_ptr<Transport>> transport = MakeTransport(round, rank, threads);
  if (!transport.ok()) return transport.status();
  return Communicator::Create(*bootstrap, *std::move(transport), options);
}

}  // namespace tutti::churn
