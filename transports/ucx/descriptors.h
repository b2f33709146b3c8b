// The file descriptors that UCX opens, none of them close-on-exec.
#ifndef TUTTI_TRANSPORTS_UCX_DESCRIPTORS_H_
#define TUTTI_TRANSPORTS_UCX_DESCRIPTORS_H_

#include <vector>

namespace tutti::ucx {

// Makes descriptors close-on-exec that were opened since `before` and are of a kind that UCX opens: a socket, a pipe,
// an event descriptor of the kernel, a file of shared memory or /dev/null. Descriptors that another thread opens
// meanwhile are taken for UCX's.
void CloseOnExecSince(const std::vector<int>& before);

// Makes `epoll` close-on-exec, and every descriptor that it waits for, directly or through other epoll descriptors. The
// descriptors behind UCX's epoll descriptor are all of UCX's connections.
void CloseOnExecBehind(int epoll);

// Makes the files behind UCX's shared memory close-on-exec; UCX opens more of them when peers connect.
void CloseSharedFilesOnExec();

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_DESCRIPTORS_H_
