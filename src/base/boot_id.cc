#include "base/boot_id.h"

#include <fstream>

namespace tutti {

absl::StatusOr<std::string> BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (std::getline(file, id) && !id.empty()) return id;
  return absl::NotFoundError("/proc/sys/kernel/random/boot_id cannot be read; give the node a name (TUTTI_NODE)");
}

}  // namespace tutti
