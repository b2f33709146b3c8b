// File descriptors of this process: UCX opens descriptors without close-on-exec, and aborts the process where no
// descriptor is free.
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

// Makes `epoll` close-on-exec, and every descriptor that it waits for, directly or through other epoll descriptors. The
// descriptors behind UCX's epoll descriptor are all of UCX's connections.
void CloseOnExecBehind(int epoll);

// Makes the files behind UCX's shared memory close-on-exec; UCX opens more of them when peers connect.
void CloseSharedFilesOnExec();

// ResourceExhausted unless this process may open `count` more descriptors; `what` names the user of the descriptors in
// the error.
absl::Status NeedDescriptors(std::size_t count, absl::string_view what);

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_DESCRIPTORS_H_
