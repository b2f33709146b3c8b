// File descriptors of this process: UCX opens its own without close-on-exec, and aborts the process where it gets none.
#ifndef TUTTI_TRANSPORTS_UCX_DESCRIPTORS_H_
#define TUTTI_TRANSPORTS_UCX_DESCRIPTORS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tutti::ucx {

// The descriptors of this process that are open now.
std::vector<int> OpenDescriptors();

// Makes descriptors close-on-exec that were opened since `before` and are of a kind that UCX opens: a socket, a pipe,
// an event descriptor of the kernel, a file of shared memory or /dev/null. Descriptors that another thread opens
// meanwhile are taken for UCX's.
void CloseOnExecSince(const std::vector<int>& before);

// Makes `epoll` close-on-exec, and every descriptor that it waits for, directly or through other epoll descriptors.
// Behind UCX's epoll descriptor those are all of its connections.
void CloseOnExecBehind(int epoll);

// Makes the files behind UCX's shared memory close-on-exec; UCX opens more of them when peers connect.
void CloseSharedFilesOnExec();

// ResourceExhausted unless this process may open `count` more descriptors; `what` names in the error what needs them.
absl::Status NeedDescriptors(std::size_t count, absl::string_view what);

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_DESCRIPTORS_H_
