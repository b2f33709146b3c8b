// Checks that several algorithms make of the buckets that they are given.
#ifndef TUTTI_BUCKET_SUPPORT_H_
#define TUTTI_BUCKET_SUPPORT_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tutti/dtype.h"

namespace tutti {

// OK when a codec can encode values of `dtype`. The error calls the values `what` ("weights") and ends with
// `otherwise`, which says what to use instead (" (use decentralized)"), or nothing.
inline absl::Status CheckEncodable(absl::string_view what, DType dtype, absl::string_view otherwise = "") {
  if (IsFloating(dtype) && dtype != DType::kF64) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(what, " of ", Name(dtype), " cannot be encoded; valid: f32, f16, bf16", otherwise));
}

inline absl::Status CheckAveragedWeights(DType dtype) {
  if (IsFloating(dtype)) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("weights of ", Name(dtype), " cannot be averaged; valid: f32, f64, f16, bf16"));
}

}  // namespace tutti

#endif  // TUTTI_BUCKET_SUPPORT_H_
