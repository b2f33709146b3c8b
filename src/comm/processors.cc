#include "comm/processors.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tutti {
namespace {

// The processors that a thread may run on, as hexadecimal bytes.
std::string AllowedSet() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    // The machine has more processors than the set has room for: the text then gives their number, and not which they
    // are.
    return std::string(std::thread::hardware_concurrency() / 8 * 2, 'f');
  }
  std::string bytes(reinterpret_cast<const char*>(&allowed), sizeof(allowed));
  bytes.resize(bytes.find_last_not_of('\0') + 1);
  return absl::BytesToHexString(bytes);
}

// The quotas of one rank, from that of the outermost group on.
using Quotas = std::vector<ProcessorQuota>;

// The processors that the quotas of `ranks` are worth together, from the `depth`-th quota of each rank on; `most` where
// a rank has no such quota.
std::int64_t WorthOf(const std::vector<Quotas>& ranks, std::size_t depth, std::int64_t most) {
  std::map<std::string, std::vector<Quotas>> groups;
  for (const Quotas& rank : ranks) {
    if (depth == rank.size()) return most;
    groups[rank[depth].group].push_back(rank);
  }
  std::int64_t sum = 0;
  for (const auto& [group, inside] : groups) sum += WorthOf(inside, depth + 1, inside[0][depth].processors);
  return std::min(sum, most);
}

}  // namespace

std::string AllowedProcessors(const std::vector<ProcessorQuota>& quotas) {
  std::string text = AllowedSet();
  for (const ProcessorQuota& quota : quotas) absl::StrAppend(&text, " ", quota.processors, " ", quota.group);
  return text;
}

int CountProcessors(absl::Span<const std::string> allowed) {
  std::string any;
  std::vector<Quotas> of_ranks;
  for (const std::string& said : allowed) {
    const std::vector<std::string> parts = absl::StrSplit(said, ' ');
    const std::string& text = parts[0];
    Quotas& quotas = of_ranks.emplace_back();
    if (parts.size() % 2 == 0) return 0;
    for (std::size_t i = 1; i < parts.size(); i += 2) {
      ProcessorQuota& quota = quotas.emplace_back(ProcessorQuota{0, parts[i + 1]});
      if (quota.group.empty() || !absl::SimpleAtoi(parts[i], &quota.processors)) return 0;
    }
    if (text.empty() || text.size() % 2 != 0 || !std::all_of(text.begin(), text.end(), absl::ascii_isxdigit)) return 0;
    const std::string bytes = absl::HexStringToBytes(text);
    any.resize(std::max(any.size(), bytes.size()));
    for (std::size_t i = 0; i < bytes.size(); ++i) any[i] = static_cast<char>(any[i] | bytes[i]);
  }
  int count = 0;
  for (const char byte : any) count += std::popcount(static_cast<std::uint8_t>(byte));
  return static_cast<int>(WorthOf(of_ranks, 0, count));
}

}  // namespace tutti
