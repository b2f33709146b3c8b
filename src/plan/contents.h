// The contents of one memory at one moment of a symbolic run.
#ifndef TUTTI_PLAN_CONTENTS_H_
#define TUTTI_PLAN_CONTENTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "plan/order.h"
#include "plan/symbols.h"

namespace tutti {

// A run of `count` elements with consecutive indices, the first of which is `value`.
struct ValueRun {
  std::int64_t count = 0;
  Value value = {};
  Position writer = Order::kNone;  // the step that wrote the run; kNone: there from the start
};

// Appends `run` to `runs`, joining it to the last run if `run` continues the last run.
void Append(std::vector<ValueRun>& runs, const ValueRun& run);
// The `count` elements of `runs` from element `first` on.
std::vector<ValueRun> Slice(absl::Span<const ValueRun> runs, std::int64_t first, std::int64_t count);

class Contents {
 public:
  // Reads the elements of a range, in order; bytes that nobody wrote are Symbols::Nothing. Sets `error` when bytes were
  // written as another type.
  std::vector<ValueRun> Read(const Ref& ref, std::string& error) const;
  void Write(const Ref& ref, absl::Span<const ValueRun> runs, Position writer);
  // All runs that were written, whatever their type.
  std::vector<ValueRun> Pieces() const;

 private:
  struct Piece {
    std::int64_t end;
    DType dtype;
    Value value;
    Position writer;
  };
  void Cut(std::int64_t at);

  std::map<std::int64_t, Piece> pieces_;  // disjoint pieces, by first byte
};

}  // namespace tutti

#endif  // TUTTI_PLAN_CONTENTS_H_
