// Writes a file that the user named.
#ifndef TUTTI_BINDINGS_CLI_WRITE_FILE_H_
#define TUTTI_BINDINGS_CLI_WRITE_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace tutti::cli {

// Whether WriteFile can open `path`, asked before the work whose result it is to hold. Leaves the file as it is, and
// none where there is none. The error names the file and says what the system said; WriteFile's too.
absl::Status CheckWritable(const std::string& path);

absl::Status WriteFile(const std::string& path, const std::string& text);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_WRITE_FILE_H_
