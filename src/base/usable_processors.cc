#include "base/usable_processors.h"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tutti/rounding.h"

namespace tutti {
namespace {

// The limit of the group whose folder this is: microseconds of processor time in each period of so many microseconds.
// Nothing is read where there is no limit: "max" is no number, and a quota of -1 is none.
struct Limit {
  std::int64_t quota = -1;
  std::int64_t period = -1;
};

// Of cgroup v2.
Limit UnifiedLimit(const std::string& folder) {
  Limit limit;
  std::ifstream(absl::StrCat(folder, "/cpu.max")) >> limit.quota >> limit.period;
  return limit;
}

// Of cgroup v1.
Limit ControllerLimit(const std::string& folder) {
  Limit limit;
  std::ifstream(absl::StrCat(folder, "/cpu.cfs_quota_us")) >> limit.quota;
  std::ifstream(absl::StrCat(folder, "/cpu.cfs_period_us")) >> limit.period;
  return limit;
}

int ProcessorsOf(const Limit& limit) {
  const std::int64_t processors = DivideRoundingUp(limit.quota, limit.period);
  return static_cast<int>(std::clamp<std::int64_t>(processors, 1, std::numeric_limits<int>::max()));
}

std::string NameOf(const std::string& folder) {
  struct stat status = {};
  ::stat(folder.c_str(), &status);
  return absl::StrCat(status.st_dev, ".", status.st_ino);
}

// Appends the limits of the group `path` below `mount`, and then those of the groups around it. A container sees its
// own group as `mount` itself, though the kernel may name it by its path on the host: folders that are missing have no
// limit.
void TakeLimits(const std::string& mount, std::string path, Limit (*limit_of)(const std::string& folder),
                std::vector<ProcessorQuota>& limits) {
  // "/" is the mount itself; ".." leads to a group outside of what this container sees.
  if (path == "/" || !absl::StartsWith(path, "/") || absl::StrContains(absl::StrCat(path, "/"), "/../")) path.clear();
  while (true) {
    const std::string folder = mount + path;
    const Limit limit = limit_of(folder);
    if (limit.quota > 0 && limit.period > 0) limits.push_back({ProcessorsOf(limit), NameOf(folder)});
    if (path.empty()) return;
    path.erase(path.rfind('/'));
  }
}

}  // namespace

std::vector<ProcessorQuota> QuotasOfProcess(const std::string& root) {
  std::vector<ProcessorQuota> limits;
  const std::string mounts = absl::StrCat(root, "/sys/fs/cgroup");
  std::ifstream groups(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    // "0::/path" of cgroup v2, "4:cpu,cpuacct:/path" of v1.
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    if (fields[1].empty()) {
      for (const char* mount : {"", "/unified"}) TakeLimits(mounts + mount, fields[2], UnifiedLimit, limits);
    } else if (absl::c_linear_search(absl::StrSplit(fields[1], ','), "cpu")) {
      TakeLimits(absl::StrCat(mounts, "/cpu"), fields[2], ControllerLimit, limits);
    }
  }
  std::reverse(limits.begin(), limits.end());
  return limits;
}

int UsableProcessors(const std::string& root) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // The call fails where the machine has more processors than the set has room for.
  const bool known = ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
  int processors = known ? CPU_COUNT(&allowed) : static_cast<int>(std::thread::hardware_concurrency());
  for (const ProcessorQuota& quota : QuotasOfProcess(root)) processors = std::min(processors, quota.processors);
  return std::max(1, processors);
}

}  // namespace tutti
