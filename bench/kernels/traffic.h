// The movements of memory that traffic_bench.cc measures.
#ifndef TUTTI_BENCH_KERNELS_TRAFFIC_H_
#define TUTTI_BENCH_KERNELS_TRAFFIC_H_

#include <cstddef>
#include <cstdint>

namespace tutti {

enum class Movement : std::uint8_t {
  kRead,        // values are read
  kUpdate,      // values are added to, in place
  kStream,      // values are written past the cache, and not read
  kEncode,      // values are read, and a message is written
  kDecode,      // a message is read, and values are written
  kAccumulate,  // a message is read, and added to values
};

struct Traffic {
  Movement movement;
  std::size_t ratio;     // the values per element of the message: 2, 4 or 8
  std::size_t distance;  // how far ahead memory is fetched, in bytes; 0: not at all
};

}  // namespace tutti

#endif  // TUTTI_BENCH_KERNELS_TRAFFIC_H_
