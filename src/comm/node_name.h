// The name by which ranks tell whether they share a node.
#ifndef TUTTI_COMM_NODE_NAME_H_
#define TUTTI_COMM_NODE_NAME_H_

#include <string>

#include "absl/status/statusor.h"

namespace tutti {

// TUTTI_NODE, or else a name that processes have in common when they share a kernel and a network namespace: ranks on
// one node hand each other their memory through sockets of the namespace, so containers that have networks of their own
// are nodes of their own. NotFound where the system tells no name.
absl::StatusOr<std::string> NodeName();

}  // namespace tutti

#endif  // TUTTI_COMM_NODE_NAME_H_
