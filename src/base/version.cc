#include "tutti/version.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tutti {

absl::string_view Version() { return TUTTI_VERSION; }

std::string BuildSummary::in_words() const {
  return absl::StrCat(compiler, is_optimized ? ", optimized" : ", not optimized", asserts ? ", with assertions" : "",
                      is_sanitized ? ", with sanitizers" : "");
}

BuildSummary DescribeBuild() {
  BuildSummary build;
#ifdef __clang__
  build.compiler = "clang " __clang_version__;
#else
  build.compiler = "g++ " __VERSION__;
#endif
#ifndef __OPTIMIZE__
  build.is_optimized = false;
#endif
#ifndef NDEBUG
  build.asserts = true;
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  build.is_sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  build.is_sanitized = true;
#endif
#endif
  return build;
}

#ifndef TUTTI_WITH_UCX
absl::StatusOr<UcxSummary> DescribeUcx() { return absl::UnimplementedError("this build has no UCX transport"); }
#endif

}  // namespace tutti
