#include "transports/nccl/library.h"
#include "tutti/devices.h"

namespace tutti {

absl::StatusOr<NcclSummary> DescribeNccl() {
  const absl::StatusOr<nccl::Library>& library = nccl::LoadedLibrary();
  if (!library.ok()) return library.status();
  NcclSummary summary;
  summary.version = nccl::VersionText(library->version);
  summary.path = library->path;
  for (const absl::string_view feature : nccl::Features(*library)) summary.features.emplace_back(feature);
  for (const absl::string_view feature : nccl::MissingFeatures(*library)) summary.missing.emplace_back(feature);
  return summary;
}

}  // namespace tutti
