// The place of the files behind UCX's shared memory, and the removal of files that dead processes have left.
//
// UCX makes a file with a name, fills it with zeros, which takes milliseconds, and only then removes the name: peers
// open the file through /proc. A process that is killed in between leaves the file behind, up to 2.3 MB of /dev/shm.
// Therefore all processes of a user make UCX's files in a directory of Tutti's, where a file of UCX's is removed once
// it is a minute old.
#ifndef TUTTI_TRANSPORTS_UCX_SHARED_FILES_H_
#define TUTTI_TRANSPORTS_UCX_SHARED_FILES_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tutti::ucx {

inline constexpr absl::string_view kSharedFilesPrefix = "/dev/shm/tutti-";
// The beginning of the names that UCX gives its files.
inline constexpr absl::string_view kSharedFileName = "ucx_shm_posix_";

// The directory for UCX's files, "/dev/shm/tutti-1000" for user id 1000: made if it is missing, and swept. "" when it
// cannot be made, or is not this user's alone; UCX then makes its files in /dev/shm itself.
std::string DirectoryOfSharedFiles();

// Removes UCX's files in `directory` that are older than `age`.
void SweepSharedFiles(const std::string& directory, absl::Duration age);

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_SHARED_FILES_H_
