#include "tutti/version.h"

#include "absl/status/status.h"

namespace tutti {

absl::string_view Version() { return TUTTI_VERSION; }

absl::string_view CompilerVersion() {
#ifdef __clang__
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

#ifndef TUTTI_WITH_UCX
absl::StatusOr<UcxSummary> DescribeUcx() { return absl::UnimplementedError("this build has no UCX transport"); }
#endif

}  // namespace tutti
