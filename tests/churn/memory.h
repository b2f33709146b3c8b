// Memory of calls. Before a call the memory is filled with values from which results can be told; after the call it is
// poisoned, so that later writes are found.
#ifndef TUTTI_TESTS_CHURN_MEMORY_H_
#define TUTTI_TESTS_CHURN_MEMORY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/communicator.h"

namespace tutti::churn {

// The integer at element `i`; integers repeat with the period kPeriod.
using Values = std::function<int(std::int64_t i)>;
inline constexpr std::int64_t kPeriod = 13;

void Fill(std::byte* to, DType dtype, std::int64_t count, const Values& values);
// The first element that differs from `values`.
std::optional<std::int64_t> FirstWrong(const std::byte* at, DType dtype, std::int64_t count, const Values& values);
// The number at element `i`, for messages.
double NumberAt(const std::byte* at, DType dtype, std::int64_t i);

class Memory {
 public:
  // Allocates in the arena of `communicator`, or in ordinary memory.
  static absl::StatusOr<Memory> Make(Communicator& communicator, std::int64_t bytes, bool in_arena);

  std::byte* data() { return arena_.data() != nullptr ? arena_.data() : ordinary_.data(); }
  std::int64_t bytes() const { return bytes_; }

  void Poison();
  // The first byte that was written since the memory was poisoned.
  std::optional<std::int64_t> FirstWritten() const;

 private:
  const std::byte* begin() const { return arena_.data() != nullptr ? arena_.data() : ordinary_.data(); }

  std::int64_t bytes_ = 0;
  Buffer arena_;
  std::vector<std::byte> ordinary_;
};

}  // namespace tutti::churn

#endif  // TUTTI_TESTS_CHURN_MEMORY_H_
