// The state that QAdam::SaveState writes, as bytes and as values.
#ifndef TUTTI_SYNC_QADAM_FORMAT_H_
#define TUTTI_SYNC_QADAM_FORMAT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tutti {

// m, v and t of a parameter. Name and tensors belong to the optimizer, or to the text that was parsed.
struct SavedMoments {
  absl::string_view name;
  std::int64_t changes = 0;  // t, the steps that have changed the parameter
  bool frozen = false;       // whether v is v̂, that of after the warm-up
  bool trained = true;       // whether the optimizer that was saved had the parameter
  absl::string_view m;       // f32
  absl::string_view v;       // f32, as many as m
};

struct SavedQAdam {
  std::int64_t step = 0;
  bool frozen = false;                   // whether the warm-up is over
  double last_norm = 0;                  // of v, when QAdam last computed the norm
  std::vector<SavedMoments> parameters;  // those that are trained, and then those that were trained before
};

// The format is 64-bit numbers, little endian, and byte strings after their length: magic "TUTQ", version, step,
// frozen, last norm (its bits); the number of parameters; of each its changes, flags (1: frozen, 2: not trained), name,
// m and v; and the hash of all of that (hash.h).
std::string Write(const SavedQAdam& saved);

// The values in `state`, whose bytes the result shares. InvalidArgument says what is damaged.
absl::StatusOr<SavedQAdam> ParseQAdam(const std::string& state);

}  // namespace tutti

#endif  // TUTTI_SYNC_QADAM_FORMAT_H_
