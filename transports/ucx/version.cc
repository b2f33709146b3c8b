#include "tutti/version.h"

#include "transports/ucx/library.h"

namespace tutti {

absl::StatusOr<UcxSummary> DescribeUcx() {
  const absl::StatusOr<ucx::Library>& library = ucx::LoadLibrary();
  if (!library.ok()) return library.status();
  return UcxSummary{.version = library->ucp_get_version_string(), .path = library->path};
}

}  // namespace tutti
