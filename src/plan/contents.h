// What one memory holds at one moment of a symbolic run.
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

// `count` elements of consecutive indices that begin with `value`.
struct Run {
  std::int64_t count = 0;
  Value value = {};
  Position writer = Order::kNone;  // the step that wrote them; kNone: there from the start
};

// Appends, joining a run to the one it continues.
void Append(std::vector<Run>& runs, const Run& run);
// `count` elements of `runs` from element `first` on.
std::vector<Run> Slice(absl::Span<const Run> runs, std::int64_t first, std::int64_t count);

class Contents {
 public:
  // The elements of a range, in order; bytes nobody wrote are Symbols::Nothing. Sets `error` instead when bytes
  // were written as another type.
  std::vector<Run> Read(const Ref& ref, std::string& error) const;
  void Write(const Ref& ref, absl::Span<const Run> runs, Position writer);
  // Everything written, whatever its type.
  std::vector<Run> Pieces() const;

 private:
  struct Piece {
    std::int64_t end;
    DType dtype;
    Value value;
    Position writer;
  };
  void Cut(std::int64_t at);

  std::map<std::int64_t, Piece> pieces_;  // disjoint, by first byte
};

}  // namespace tutti

#endif  // TUTTI_PLAN_CONTENTS_H_
