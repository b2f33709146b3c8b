// Ranks of a check as processes, all of which use the first GPU of this machine with the real CUDA and NCCL.
#include "tests/harness/rank_processes.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "comm/device_parts.h"
#include "tests/gpu/rank_check.h"
#include "tests/gpu/rank_report.h"
#include "tutti/bootstrap.h"
#include "tutti/store.h"
#include "tutti/transport.h"

namespace tutti::gpu {
namespace {

// What the process of a rank says to the process that started it, one per line.
constexpr absl::string_view kNote = "note ";
constexpr absl::string_view kPassed = "passed";
constexpr absl::string_view kFailed = "failed ";  // the code, and the text with its line feeds as tabs

// NCCL refuses two ranks on one GPU unless their hosts have different names; ranks on different hosts talk over
// sockets. Variables that the user has set stay.
void PrepareNccl(Rank rank) {
  setenv("NCCL_HOSTID", absl::StrCat("tutti-rank-", rank).c_str(), /*overwrite=*/1);
  const struct {
    const char* name;
    const char* value;
  } settings[] = {
      {"NCCL_SOCKET_IFNAME", "lo"},    {"NCCL_NET", "Socket"},    {"NCCL_IB_DISABLE", "1"},
      {"NCCL_P2P_DISABLE", "1"},       {"NCCL_SHM_DISABLE", "1"}, {"NCCL_NVLS_ENABLE", "0"},
      {"NCCL_RAS_ENABLE", "0"},        {"NCCL_MAX_CTAS", "4"},  // kernels of several ranks fit on the GPU together
      {"NCCL_CUMEM_HOST_ENABLE", "0"},
  };
  for (const auto& setting : settings) setenv(setting.name, setting.value, /*overwrite=*/0);
}

absl::Status RunRank(const RankCheck& check, Rank rank, int size, const StreamCapture& capture,
                     const std::string& directory, Lines& lines) {
  const absl::StatusOr<DeviceParts> parts = PartsOfThisProcess();
  if (!parts.ok()) return parts.status();
  absl::StatusOr<std::shared_ptr<Store>> store = MakeFileStore(directory, rank);
  if (!store.ok()) return store.status();
  absl::StatusOr<std::unique_ptr<Transport>> transport =
      MakeUcxTransport({}, {.region_bytes = std::int64_t{256} << 20});
  if (!transport.ok()) return transport.status();
  Bootstrap bootstrap;
  bootstrap.identity.rank = bootstrap.identity.local_rank = rank;
  bootstrap.identity.size = bootstrap.identity.local_size = size;
  bootstrap.store = *store;
  absl::StatusOr<std::unique_ptr<Communicator>> comm = Communicator::Create(
      bootstrap, *std::move(transport),
      {.timeout = kPatience, .cuda_device = 0, .gpu_transport = check.is_staged ? "staged" : "nccl"});
  if (!comm.ok()) return comm.status();
  CheckedRank checked = {.comm = **comm,
                         .device = {.cuda = parts->cuda, .native = parts->native, .capture = capture},
                         .die =
                             [] {
                               kill(getpid(), SIGKILL);
                               return absl::InternalError("is still alive");
                             },
                         .note = [&](const std::string& text) { lines.Say(absl::StrCat(kNote, text)); }};
  return check.run(checked);
}

// What one rank reports until its end or `deadline`.
absl::Status AwaitReport(RankProcesses& ranks, Rank rank, absl::Time deadline) {
  while (std::optional<std::string> line = ranks.Hear(rank, deadline)) {
    absl::string_view text = *line;
    if (text == kPassed) return absl::OkStatus();
    if (absl::ConsumePrefix(&text, kFailed)) {
      return absl::Status(static_cast<absl::StatusCode>(text.front() - 'a'),
                          absl::StrReplaceAll(text.substr(1), {{"\t", "\n"}}));
    }
    if (rank == 0 && absl::ConsumePrefix(&text, kNote)) std::printf("    %s\n", std::string(text).c_str());
  }
  if (absl::Now() >= deadline) return absl::DeadlineExceededError("has not reported in time, and was killed");
  return absl::UnavailableError("ended without a report");
}

}  // namespace

absl::Status RunOnGpu(const RankCheck& check, int size, const StreamCapture& capture) {
  std::string directory = (std::filesystem::temp_directory_path() / "tutti_gpu_XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) return absl::InternalError("no folder for the store can be made");
  std::fflush(stdout);
  std::vector<absl::Status> results;
  {
    RankProcesses ranks(size, [&](Rank rank, Lines& lines) {
      PrepareNccl(rank);
      const absl::Status status = RunRank(check, rank, size, capture, directory, lines);
      if (status.ok()) {
        lines.Say(std::string(kPassed));
        return 0;
      }
      const auto code = static_cast<char>('a' + static_cast<int>(status.code()));
      lines.Say(absl::StrCat(kFailed, std::string(1, code), absl::StrReplaceAll(status.message(), {{"\n", "\t"}})));
      return 1;
    });
    const absl::Time deadline = absl::Now() + check.timeout;
    for (Rank rank = 0; rank < size; ++rank) {
      if (check.last_rank_dies && rank == size - 1) break;
      results.push_back(AwaitReport(ranks, rank, deadline));
    }
    // Ranks still end their communicators, which must not hang either.
    for (Rank rank = 0; rank < static_cast<Rank>(results.size()); ++rank) {
      const std::optional<int> ended = ranks.AwaitEnd(rank, deadline);
      absl::Status& result = results[static_cast<std::size_t>(rank)];
      if (result.ok() && ended != 0) {
        result = absl::InternalError(ended ? absl::StrCat("passed, and then ended with wait status ", *ended)
                                           : "passed, and then did not end in time");
      }
    }
  }
  std::filesystem::remove_all(directory);
  return Joined(results);
}

absl::Status FindGpu() {
  RankProcesses asker(1, [](Rank, Lines& lines) {
    const absl::StatusOr<DeviceParts> parts = PartsOfThisProcess();
    const absl::Status status = parts.ok() ? parts->without_nccl : parts.status();
    if (!status.ok()) lines.Say(std::string(status.message()));
    return status.ok() ? 0 : 1;
  });
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  const std::optional<std::string> reason = asker.Hear(0, deadline);
  if (reason) return absl::NotFoundError(*reason);
  if (asker.AwaitEnd(0, deadline) == 0) return absl::OkStatus();
  return absl::NotFoundError("no GPU: the process that asked for one has not ended well");
}

}  // namespace tutti::gpu
