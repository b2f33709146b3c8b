// Memory in several pieces that one call of the kernel is given to send.
#ifndef TUTTI_TRANSPORTS_UCX_PIECES_H_
#define TUTTI_TRANSPORTS_UCX_PIECES_H_

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/types/span.h"

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
    if (bytes_ <= kGathered) return SendGathered(socket);
    msghdr header = {};
    header.msg_iov = parts_.data();
    header.msg_iovlen = count_;
    return sendmsg(socket, &header, kFlags);
  }
  // The bytes that Send gives.
  std::int64_t bytes() const { return bytes_; }

 private:
  static constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  // Up to so many bytes are copied together: that takes less time than the kernel's look at several pieces.
  static constexpr std::int64_t kGathered = 512;

  ssize_t SendGathered(int socket) const {
    std::array<std::byte, kGathered> all;
    std::size_t size = 0;
    for (const iovec& part : absl::MakeConstSpan(parts_).first(count_)) {
      std::memcpy(all.data() + size, part.iov_base, part.iov_len);
      size += part.iov_len;
    }
    return send(socket, all.data(), size, kFlags);
  }

  std::array<iovec, kMost> parts_;
  std::size_t count_ = 0;
  std::int64_t taken_;
  std::int64_t bytes_ = 0;
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_PIECES_H_
