#include "bindings/cli/processors.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/usable_processors.h"

namespace tutti::cli {

std::string ProcessorName(std::istream& cpuinfo) {
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    const absl::string_view name = absl::StripAsciiWhitespace(parts.second);
    if (absl::StartsWith(parts.first, "model name") && !name.empty()) return std::string(name);
  }
  return "unknown processor";
}

std::string DescribeProcessors() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  const auto all = static_cast<int>(std::thread::hardware_concurrency());
  const int usable = UsableProcessors();
  return absl::StrCat(usable < all ? absl::StrCat(usable, " of ") : "", all, " × ", ProcessorName(cpuinfo));
}

absl::StatusOr<std::vector<cpu_set_t>> SharesOfProcessors(int ranks) {
  cpu_set_t all;
  if (::sched_getaffinity(0, sizeof(all), &all) != 0) {
    return absl::ErrnoToStatus(errno, "--bind: the processors of this process are not known");
  }
  const int processors = CPU_COUNT(&all);
  if (processors < ranks) {
    return absl::FailedPreconditionError(
        absl::StrCat("--bind: ", ranks, " ranks of this machine need a processor each, and this process may run on ",
                     processors, " only: leave --bind out"));
  }
  std::vector<cpu_set_t> shares(static_cast<std::size_t>(ranks));
  for (cpu_set_t& share : shares) CPU_ZERO(&share);
  std::int64_t number = 0;
  for (std::size_t processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &all)) continue;
    CPU_SET(processor, &shares[static_cast<std::size_t>(number * ranks / processors)]);
    ++number;
  }
  return shares;
}

absl::Status BindToShare(Rank local_rank, int local_size) {
  const absl::StatusOr<std::vector<cpu_set_t>> shares = SharesOfProcessors(local_size);
  if (!shares.ok()) return shares.status();
  if (::sched_setaffinity(0, sizeof(cpu_set_t), &(*shares)[static_cast<std::size_t>(local_rank)]) == 0) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, "--bind: this process cannot be bound");
}

}  // namespace tutti::cli
