#include "comm/node_name.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/boot_id.h"
#include "base/config.h"

namespace tutti {

absl::StatusOr<std::string> NodeName() {
  const absl::StatusOr<Config>& config = LoadConfig();
  if (!config.ok()) return config.status();
  if (!config->node.empty()) return config->node;
  const absl::StatusOr<std::string> kernel = BootId();
  if (!kernel.ok()) return kernel.status();
  std::error_code unknown;  // a system without network namespaces has one network for all of its processes
  const std::filesystem::path network = std::filesystem::read_symlink("/proc/self/ns/net", unknown);
  return absl::StrCat(*kernel, " ", network.string());
}

}  // namespace tutti
