// Numbers of bytes as users write and read them, in binary units.
#ifndef TUTTI_BINDINGS_CLI_SIZES_H_
#define TUTTI_BINDINGS_CLI_SIZES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tutti::cli {

// Parses a number of bytes such as 4, 1K, 256M or 1G, at least 0. InvalidArgument shows these forms.
absl::StatusOr<std::int64_t> ParseBytes(absl::string_view text);

// The inverse of ParseBytes; a number that is no whole number of units stays in bytes.
std::string FormatBytes(std::int64_t bytes);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_SIZES_H_
