// Reads a file that the user named.
#ifndef TUTTI_BINDINGS_CLI_READ_FILE_H_
#define TUTTI_BINDINGS_CLI_READ_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace tutti::cli {

// All bytes of a file. An error names the file and the system's reason, also where `path` is a directory.
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_READ_FILE_H_
