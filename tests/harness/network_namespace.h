// Runs a part of a test in a network of its own, which no other process sees and whose addresses the test chooses.
#ifndef TUTTI_TESTS_HARNESS_NETWORK_NAMESPACE_H_
#define TUTTI_TESTS_HARNESS_NETWORK_NAMESPACE_H_

#include <string>

#include "absl/functional/function_ref.h"

namespace tutti {

// Runs `body` in a thread of its own and in a new network namespace, whose only interface is loopback at 127.0.0.1;
// threads that `body` starts are in that namespace, too. False, and `body` has not run, where the system does not let
// this process make a network namespace, which takes root.
bool RunInNetworkNamespace(absl::FunctionRef<void()> body);

// Gives loopback one more IPv4 address, under a label such as "lo:1".
void AddLoopbackAddress(const std::string& label, const std::string& address);

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_NETWORK_NAMESPACE_H_
