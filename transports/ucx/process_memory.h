// The memory of another process of this node, which a rank reads to take a message from where its sender has it.
#ifndef TUTTI_TRANSPORTS_UCX_PROCESS_MEMORY_H_
#define TUTTI_TRANSPORTS_UCX_PROCESS_MEMORY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "transports/ucx/address.h"

namespace tutti::ucx {

class ProcessMemory {
 public:
  // The memory of no process: nothing can be read.
  ProcessMemory() = default;
  // The memory of the process at the other end of `socket`, a connected socket of the node; the memory of no process
  // unless the system lets this process read there, and `nonce`, which that process alone has at `place`, is found
  // there: a process of another namespace may have another number than it seems.
  static ProcessMemory AtOtherEnd(int socket, std::uint64_t place, const Nonce& nonce);

  // Whether a process that may read this one can read the `bytes` bytes at `data`: memory of a device, for example, is
  // refused to others. Tried at the first and the last byte.
  static bool IsShown(const void* data, std::size_t bytes);

  bool readable() const { return process_ > 0; }
  // Copies `bytes` bytes, those at `place` of the process, to `to`. An error where the process has no memory there, or
  // forbids it meanwhile; NotFound where the process has ended, or has its nonce no longer. Where `to` cannot be
  // written, this process faults, as by any other store.
  absl::Status Read(void* to, std::uint64_t place, std::size_t bytes);

 private:
  ProcessMemory(pid_t process, std::uint64_t nonce_at, const Nonce& nonce)
      : process_(process), thread_(process), nonce_at_(nonce_at), nonce_(nonce) {}

  // Copies some of the bytes, at least one if there are any, and returns how many; -1, and errno, where none can be
  // copied.
  ssize_t ReadSome(void* to, std::uint64_t place, std::size_t bytes);
  // Does what ReadSome does, by way of `thread`. The thread may belong to the process no longer: the nonce, which is
  // read along, proves that it does, and otherwise errno is ESRCH.
  ssize_t ReadByWayOf(pid_t thread, void* to, std::uint64_t place, std::size_t bytes) const;

  pid_t process_ = 0;
  pid_t thread_ = 0;  // a thread of the process by which the system finds its memory: not all live as long
  std::uint64_t nonce_at_ = 0;
  Nonce nonce_ = {};
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_PROCESS_MEMORY_H_
