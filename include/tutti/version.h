// Versions of Tutti, of its compiler and of UCX.
#ifndef TUTTI_VERSION_H_
#define TUTTI_VERSION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tutti {

// The version of this library, such as "0.1.0".
absl::string_view Version();

// How the library was compiled.
struct BuildSummary {
  std::string compiler;  // "g++ 12.2.0"
  bool is_optimized = true;
  bool asserts = false;       // NDEBUG was not defined
  bool is_sanitized = false;  // with AddressSanitizer or ThreadSanitizer

  // "g++ 12.2.0, optimized"
  std::string in_words() const;
};
BuildSummary DescribeBuild();

struct UcxSummary {
  std::string version;  // "1.13.1"
  std::string path;     // the file of libucp
};

// The UCX that this process uses, which may be newer than the one Tutti was built with, and the UCX of an MPI in the
// process; loads it. Unimplemented when the build has no UCX transport, NotFound when UCX cannot be loaded.
absl::StatusOr<UcxSummary> DescribeUcx();

}  // namespace tutti

#endif  // TUTTI_VERSION_H_
