// Writes a file that the user named.
#ifndef TUTTI_BINDINGS_CLI_WRITE_FILE_H_
#define TUTTI_BINDINGS_CLI_WRITE_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace tutti::cli {

// The error names the file and says what the system said.
absl::Status WriteFile(const std::string& path, const std::string& text);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_WRITE_FILE_H_
