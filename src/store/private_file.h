// Files and directories that other users can neither read nor plant.
#ifndef TUTTI_STORE_PRIVATE_FILE_H_
#define TUTTI_STORE_PRIVATE_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tutti {

// Makes `path` with mode 0700, or accepts it when it is a directory of this user that nobody else can write.
absl::Status MakePrivateDirectory(absl::string_view path);

// Puts `content` under `path` (mode 0600) at once: a reader sees all of it or what was there before.
absl::Status WritePrivateFile(const std::string& path, absl::string_view content);

// NotFound when there is none; PermissionDenied when it is another user's or others may read it, and for links.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, std::size_t max_bytes);

// $XDG_RUNTIME_DIR/tutti, or /tmp/tutti-<user id>: for what ends with the job. Made when missing.
absl::StatusOr<std::string> RuntimeDirectory();

}  // namespace tutti

#endif  // TUTTI_STORE_PRIVATE_FILE_H_
