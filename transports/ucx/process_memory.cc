#include "transports/ucx/process_memory.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace tutti::ucx {

bool ProcessMemory::IsShown(const void* data, std::size_t bytes) {
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(data));  // read, not written
  const iovec ends[] = {{begin, 1}, {begin + bytes - 1, 1}};
  std::array<std::byte, 2> found;
  const iovec here = {found.data(), found.size()};
  return process_vm_readv(getpid(), &here, 1, ends, 2, 0) == static_cast<ssize_t>(found.size());
}

ProcessMemory ProcessMemory::AtOtherEnd(int socket, std::uint64_t place, const Nonce& nonce) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) return ProcessMemory();
  const ProcessMemory memory(peer.pid);
  Nonce found = {};
  const bool proven = memory.Read(found.data(), place, found.size()).ok() && Equal(found, nonce);
  return proven ? memory : ProcessMemory();
}

absl::Status ProcessMemory::Read(void* to, std::uint64_t place, std::size_t bytes) const {
  auto* dst = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const iovec here = {dst, bytes};
    const iovec there = {reinterpret_cast<void*>(static_cast<std::uintptr_t>(place)), bytes};
    const ssize_t copied = process_vm_readv(process_, &here, 1, &there, 1, 0);
    if (copied <= 0) return absl::ErrnoToStatus(copied == 0 ? EFAULT : errno, "process_vm_readv");
    dst += copied;
    place += static_cast<std::uint64_t>(copied);
    bytes -= static_cast<std::size_t>(copied);
  }
  return absl::OkStatus();
}

}  // namespace tutti::ucx
