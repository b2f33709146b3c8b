// The file descriptors of this process: which are open, and how many more the system allows.
#ifndef TUTTI_BASE_DESCRIPTORS_H_
#define TUTTI_BASE_DESCRIPTORS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tutti {

// The descriptors of this process that are open now.
std::vector<int> OpenDescriptors();

// ResourceExhausted unless this process may open `count` more descriptors; `what` names the user of the descriptors in
// the error.
absl::Status NeedDescriptors(std::size_t count, absl::string_view what);

// ResourceExhausted where `error`, the errno of a call that would have made a descriptor, says that none was free or
// that memory has run out; OK otherwise. `what` begins the message: "rank 1 cannot …".
absl::Status CheckShortage(int error, absl::string_view what);

}  // namespace tutti

#endif  // TUTTI_BASE_DESCRIPTORS_H_
