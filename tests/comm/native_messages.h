// Sends and receives of f32 for Communicator::SendRecv.
#ifndef TUTTI_TESTS_COMM_NATIVE_MESSAGES_H_
#define TUTTI_TESTS_COMM_NATIVE_MESSAGES_H_

#include <cstdint>

#include "tutti/native_transport.h"

namespace tutti {

inline NativeCall SendOf(const void* src, std::int64_t count, Rank to) {
  return {.collective = Collective::kSend, .count = count, .root = to, .src = src};
}
inline NativeCall RecvOf(void* dst, std::int64_t count, Rank from) {
  return {.collective = Collective::kRecv, .count = count, .root = from, .dst = dst};
}

}  // namespace tutti

#endif  // TUTTI_TESTS_COMM_NATIVE_MESSAGES_H_
