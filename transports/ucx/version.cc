#include "tutti/version.h"

#include "transports/ucx/library.h"

namespace tutti {

absl::StatusOr<std::string> UcxVersion() {
  const absl::StatusOr<ucx::Library>& library = ucx::LoadLibrary();
  if (!library.ok()) return library.status();
  return library->ucp_get_version_string();
}

}  // namespace tutti
