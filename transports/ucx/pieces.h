// Memory in several pieces that one call of the kernel is given to send.
#ifndef TUTTI_TRANSPORTS_UCX_PIECES_H_
#define TUTTI_TRANSPORTS_UCX_PIECES_H_

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::ucx {

// Up to kMost pieces of memory, one behind the other, of which the kernel has taken the first bytes already.
template <std::size_t kMost>
class Pieces {
 public:
  explicit Pieces(std::int64_t taken) : taken_(taken) {}

  void Add(const void* data, std::int64_t bytes) {
    const std::int64_t skipped = std::min(taken_, bytes);
    taken_ -= skipped;
    if (skipped == bytes) return;
    bytes_ += bytes - skipped;
    parts_[count_++] = {static_cast<std::byte*>(const_cast<void*>(data)) + skipped,
                        static_cast<std::size_t>(bytes - skipped)};
  }
  // Gives the kernel what has been added and is left: how many bytes it takes, or -1 and errno.
  ssize_t Send(int socket) {
    msghdr header = {};
    header.msg_iov = parts_.data();
    header.msg_iovlen = count_;
    return sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  // The bytes that Send gives.
  std::int64_t bytes() const { return bytes_; }

 private:
  std::array<iovec, kMost> parts_;
  std::size_t count_ = 0;
  std::int64_t taken_;
  std::int64_t bytes_ = 0;
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_PIECES_H_
