#include "comm/processors.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

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

// The quotas of the groups that ranks are in.
class Quotas {
 public:
  // `text` is "processors group", or "" for a rank without a quota. False when it is no such text.
  bool Add(absl::string_view text) {
    all_have_one_ = all_have_one_ && !text.empty();
    if (text.empty()) return true;
    const std::pair<absl::string_view, absl::string_view> said = absl::StrSplit(text, absl::MaxSplits(' ', 1));
    return !said.second.empty() && absl::SimpleAtoi(said.first, &of_groups_[std::string(said.second)]);
  }

  // `processors`, or what the quotas together are worth, if that is less.
  int Limit(int processors) const {
    std::int64_t sum = 0;
    for (const auto& [group, quota] : of_groups_) sum += quota;
    return all_have_one_ ? static_cast<int>(std::min<std::int64_t>(processors, sum)) : processors;
  }

 private:
  std::map<std::string, int> of_groups_;
  bool all_have_one_ = true;
};

}  // namespace

std::string AllowedProcessors(const std::optional<ProcessorQuota>& quota) {
  return quota.has_value() ? absl::StrCat(AllowedSet(), " ", quota->processors, " ", quota->group) : AllowedSet();
}

int CountProcessors(absl::Span<const std::string> allowed) {
  std::string any;
  Quotas quotas;
  for (const std::string& said : allowed) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(said, absl::MaxSplits(' ', 1));
    const std::string& text = parts.first;
    if (!quotas.Add(parts.second)) return 0;
    if (text.empty() || text.size() % 2 != 0 || !std::all_of(text.begin(), text.end(), absl::ascii_isxdigit)) return 0;
    const std::string bytes = absl::HexStringToBytes(text);
    any.resize(std::max(any.size(), bytes.size()));
    for (std::size_t i = 0; i < bytes.size(); ++i) any[i] = static_cast<char>(any[i] | bytes[i]);
  }
  int count = 0;
  for (const char byte : any) count += std::popcount(static_cast<std::uint8_t>(byte));
  return quotas.Limit(count);
}

}  // namespace tutti
