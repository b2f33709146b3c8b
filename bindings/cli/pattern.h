// The numbers that a benchmark moves: small integers, so that every result is exact in every dtype and any order of
// reduction, from tables of a prime length, so that a chunk in the wrong place does not look right.
#ifndef TUTTI_BINDINGS_CLI_PATTERN_H_
#define TUTTI_BINDINGS_CLI_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "bindings/cli/traffic.h"
#include "tutti/dtype.h"

namespace tutti::cli {

// InvalidArgument when reductions over `size` ranks are not exact in `dtype`.
absl::Status CheckExact(DType dtype, ReduceOp op, int size);

// What `rank` multiplies its elements by, where `op` is premul_sum; 1 otherwise.
std::int64_t FactorOf(ReduceOp op, int rank);

class Pattern {
 public:
  Pattern(DType dtype, ReduceOp op, int size);

  // Writes elements [first, first + count) of what `source` supplies (a rank, or Piece::kReduced).
  void Write(int source, std::int64_t first, std::int64_t count, std::byte* to);
  // How many of these elements at `data` differ from what Write would have written.
  std::int64_t CountWrong(int source, std::int64_t first, std::int64_t count, const std::byte* data);

  // How many tables are kept: at most 16, of sources that Write or CountWrong was called for.
  std::size_t tables() const { return tables_.size(); }

 private:
  using Table = std::vector<std::byte>;  // the elements of a period

  const Table& TableOf(int source);

  DType dtype_;
  ReduceOp op_;
  std::size_t element_;
  int size_;
  std::map<int, Table> tables_;  // by source
};

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_PATTERN_H_
