// Memory of calls: filled with values that a call's result can be told from, and poisoned when the call has ended, so
// that whatever is written there later is seen.
#ifndef TUTTI_TESTS_CHURN_MEMORY_H_
#define TUTTI_TESTS_CHURN_MEMORY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/communicator.h"

namespace tutti::churn {

// The integer at an element; the same at elements kPeriod apart.
using Values = std::function<int(std::int64_t i)>;
inline constexpr std::int64_t kPeriod = 13;

void Fill(std::byte* to, DType dtype, std::int64_t count, const Values& values);
// The first element that holds something else.
std::optional<std::int64_t> FirstWrong(const std::byte* at, DType dtype, std::int64_t count, const Values& values);
// The number at element `i`, for messages.
double NumberAt(const std::byte* at, DType dtype, std::int64_t i);

class Memory {
 public:
  // In the arena of `communicator`, or ordinary memory.
  static absl::StatusOr<Memory> Make(Communicator& communicator, std::int64_t bytes, bool in_arena);

  std::byte* data() { return arena_.data() != nullptr ? arena_.data() : ordinary_.data(); }
  std::int64_t bytes() const { return bytes_; }

  void Poison();
  // The first byte that was written since.
  std::optional<std::int64_t> FirstWritten() const;

 private:
  const std::byte* begin() const { return arena_.data() != nullptr ? arena_.data() : ordinary_.data(); }

  std::int64_t bytes_ = 0;
  Buffer arena_;
  std::vector<std::byte> ordinary_;
};

}  // namespace tutti::churn

#endif  // TUTTI_TESTS_CHURN_MEMORY_H_
