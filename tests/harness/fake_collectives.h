// The arithmetic of the fake NCCL: what a collective does with the memory of all its ranks.
#ifndef TUTTI_TESTS_HARNESS_FAKE_COLLECTIVES_H_
#define TUTTI_TESTS_HARNESS_FAKE_COLLECTIVES_H_

#include <map>
#include <string>

#include "tests/harness/fake_clique.h"

namespace tutti {

// Bytes of one element.
std::size_t FakeSizeOf(nccl::DataType type);

// Why the calls of the ranks do not fit together, such as "rank 1 has count 4, rank 0 has count 5"; empty: they do.
std::string Disagreement(const std::map<int, FakeCall>& calls);

// Performs a collective that all ranks have come to; `calls` has an entry for each rank. Sums go in the order of ranks.
void PerformCollective(const std::map<int, FakeCall>& calls);

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_FAKE_COLLECTIVES_H_
