#include "transports/ucx/process_memory.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tutti::ucx {

namespace {

// The threads of a process of this node; empty where none is left, or the process is not visible from here.
std::vector<pid_t> ThreadsOf(pid_t process) {
  std::vector<pid_t> threads;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(absl::StrCat("/proc/", process, "/task"), error), end;
       !error && entry != end; entry.increment(error)) {
    pid_t thread = 0;
    if (absl::SimpleAtoi(entry->path().filename().string(), &thread)) threads.push_back(thread);
  }
  return threads;
}

}  // namespace

bool ProcessMemory::IsShown(const void* data, std::size_t bytes) {
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(data));  // read, not written
  const iovec ends[] = {{begin, 1}, {begin + bytes - 1, 1}};
  std::array<std::byte, 2> found;
  const iovec here = {found.data(), found.size()};
  return process_vm_readv(gettid(), &here, 1, ends, 2, 0) == static_cast<ssize_t>(found.size());
}

ProcessMemory ProcessMemory::AtOtherEnd(int socket, std::uint64_t place, const Nonce& nonce) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) return ProcessMemory();
  ProcessMemory memory(peer.pid, place, nonce);
  return memory.ReadSome(nullptr, 0, 0) == 0 ? memory : ProcessMemory();
}

absl::Status ProcessMemory::Read(void* to, std::uint64_t place, std::size_t bytes) {
  auto* dst = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t copied = ReadSome(dst, place, bytes);
    if (copied < 0) return absl::ErrnoToStatus(errno, "process_vm_readv");
    dst += copied;
    place += static_cast<std::uint64_t>(copied);
    bytes -= static_cast<std::size_t>(copied);
  }
  return absl::OkStatus();
}

ssize_t ProcessMemory::ReadByWayOf(pid_t thread, void* to, std::uint64_t place, std::size_t bytes) const {
  Nonce found = {};
  const auto in_process = [](std::uint64_t address) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
  };
  const iovec here[] = {{found.data(), found.size()}, {to, bytes}};
  const iovec there[] = {{in_process(nonce_at_), found.size()}, {in_process(place), bytes}};
  const ssize_t all = process_vm_readv(thread, here, 2, there, 2, 0);
  if (all < 0) return -1;
  const ssize_t copied = all - static_cast<ssize_t>(found.size());
  if (copied < 0 || !Equal(found, nonce_)) {
    errno = ESRCH;
    return -1;
  }
  if (copied == 0 && bytes > 0) {
    errno = EFAULT;
    return -1;
  }
  return copied;
}

ssize_t ProcessMemory::ReadSome(void* to, std::uint64_t place, std::size_t bytes) {
  ssize_t copied = ReadByWayOf(thread_, to, place, bytes);
  if (copied < 0 && errno == ESRCH) {
    // The main thread may have ended, and others of the process go on.
    for (const pid_t other : ThreadsOf(process_)) {
      copied = ReadByWayOf(other, to, place, bytes);
      if (copied < 0 && errno == ESRCH) continue;
      thread_ = other;
      break;
    }
  }
  if (copied >= 0 || errno != EFAULT) return copied;
  // The system does not say which of the two memories is at fault. A store to this process's own faults where it
  // should.
  std::byte first;
  copied = ReadByWayOf(thread_, &first, place, 1);
  if (copied == 1) std::memcpy(to, &first, 1);
  return copied;
}

}  // namespace tutti::ucx
