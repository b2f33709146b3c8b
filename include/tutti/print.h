// Plans for people: text for terminals and golden tests, Graphviz for pictures.
#ifndef TUTTI_PRINT_H_
#define TUTTI_PRINT_H_

#include <string>

#include "absl/types/span.h"
#include "tutti/plan.h"

namespace tutti {

// One line per step under a heading, in columns; equal plans give equal text. Ranges are bytes; `out@3` is the memory
// of rank 3; `#0` is the number of a message between two ranks (from 0), of a rank's signal (from 1), or of a native
// step among those of its group (from 0). Example:
//
//   all_reduce:ring rank 1 of 2: all_reduce f32 sum count=4
//   in 16, out 16, scratch 8, state 0 bytes
//   0  send    in[0,8) f32 to 0 #0
//   1  recv    scratch[0,8) f32 from 0 #0
//   2  reduce  out[8,16) f32 = sum(scratch[0,8) f32, in[8,16) f32)  after 1
std::string ToText(const Plan& plan);

// One step without its number and dependencies: "reduce out[8,16) f32 = sum(…)".
std::string ToText(const Plan& plan, const Step& step);

// Text such as "out@3[0,8) f32".
std::string ToText(const Ref& ref);

// A directed graph of the steps of all given ranks, one cluster each: dependencies drawn solid, messages and signals
// between the given ranks dashed, and dashed lines without arrows between native steps that are one collective; a
// legend says so. For `dot -Tsvg`.
std::string ToGraphviz(absl::Span<const Plan> plans);

}  // namespace tutti

#endif  // TUTTI_PRINT_H_
