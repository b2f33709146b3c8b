// Files and directories that other users can neither read nor put in place.
#ifndef TUTTI_STORE_PRIVATE_FILE_H_
#define TUTTI_STORE_PRIVATE_FILE_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fork.h"

namespace tutti {

// OK when `path` is a directory of this user that nobody else can write; NotFound when `path` does not exist.
absl::Status CheckPrivateDirectory(absl::string_view path);
// Makes `path` with mode 0700, or accepts an existing directory that CheckPrivateDirectory accepts.
absl::Status MakePrivateDirectory(absl::string_view path);

// Replaces the file at `path` (mode 0600) in one step: a reader sees all of `content`, or all of the file's earlier
// contents.
absl::Status WritePrivateFile(const std::string& path, absl::string_view content);

// Writes the file like WritePrivateFile and holds a lock on it as long as the result lives: the kernel lifts the lock
// when the process ends, in whatever way. Unimplemented where the file system has no locks.
absl::StatusOr<UnsharedFd> HoldPrivateFile(const std::string& path, absl::string_view content);
// Whether a process holds the file at `path`; NotFound when there is no file.
absl::StatusOr<bool> IsHeld(const std::string& path);

// Removes the file at `path`, unless somebody holds it.
void RemoveUnlessHeld(const std::string& path);
// Removes what WritePrivateFile and HoldPrivateFile have left in `directory` when their process died: files that nobody
// holds and whose names `is_ours` accepts, and half-written files of such names.
void SweepDirectory(const std::string& directory, absl::FunctionRef<bool(absl::string_view name)> is_ours);

// The contents of a file of this user. NotFound when there is none; PermissionDenied when it belongs to another user,
// when others may read it, and for links.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, std::size_t max_bytes);

// The directory for files that end with the job: $XDG_RUNTIME_DIR/tutti where CheckPrivateDirectory accepts
// $XDG_RUNTIME_DIR, otherwise /tmp/tutti-<user id>. The directory is made when it is missing.
absl::StatusOr<std::string> RuntimeDirectory();

}  // namespace tutti

#endif  // TUTTI_STORE_PRIVATE_FILE_H_
