// Writes a file that the user named.
#ifndef TUTTI_BINDINGS_CLI_WRITE_FILE_H_
#define TUTTI_BINDINGS_CLI_WRITE_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace tutti::cli {

struct NamedFile {
  const char* flag;
  const std::string& path;
};

// InvalidArgument, which names both flags, when two files are one, also under two spellings of a path at which there is
// no file yet. "-" is standard output.
absl::Status CheckDistinct(const NamedFile& file, const NamedFile& other);

// Whether WriteFile can open `path`: asked before the work whose result the file is to hold. Changes no file, and
// leaves none where there was none. Errors of CheckWritable and WriteFile name the file and the system's reason.
absl::Status CheckWritable(const std::string& path);

absl::Status WriteFile(const std::string& path, const std::string& text);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_WRITE_FILE_H_
