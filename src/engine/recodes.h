// Launches of a program that one kernel can carry out together: the middle of the two-shot exchange.
#ifndef TUTTI_ENGINE_RECODES_H_
#define TUTTI_ENGINE_RECODES_H_

#include <cstddef>
#include <vector>

namespace tutti {

struct Program;

// Launches [begin, end), of one step each: messages are decoded into one range of fp32 and added up there, the sum is
// divided, if it is, and encoded by the same codec.
struct Recode {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// All of them in the order of launches; `program` has a stream_order.
std::vector<Recode> FindRecodes(const Program& program);

}  // namespace tutti

#endif  // TUTTI_ENGINE_RECODES_H_
