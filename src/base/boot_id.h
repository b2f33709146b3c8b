#ifndef TUTTI_BASE_BOOT_ID_H_
#define TUTTI_BASE_BOOT_ID_H_

#include <string>

#include "absl/status/statusor.h"

namespace tutti {

// The kernel's name for this machine since it was started, which tells nodes apart. NotFound where there is none.
absl::StatusOr<std::string> BootId();

}  // namespace tutti

#endif  // TUTTI_BASE_BOOT_ID_H_
