// Calls of a library that may never return.
#ifndef TUTTI_TRANSPORTS_NCCL_BOUNDED_H_
#define TUTTI_TRANSPORTS_NCCL_BOUNDED_H_

#include <cstdint>
#include <functional>

namespace tutti::nccl {

// Calls `function` on a thread of its own and waits until it has returned, at the latest until `end_ns` of
// MonotonicNanos. False: it has not returned; the thread and what `function` holds are left behind until it does.
bool ReturnsBy(std::int64_t end_ns, std::function<void()> function);

}  // namespace tutti::nccl

#endif  // TUTTI_TRANSPORTS_NCCL_BOUNDED_H_
