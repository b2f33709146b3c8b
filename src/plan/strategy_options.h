// The part of a strategy name that a codec reads.
#ifndef TUTTI_PLAN_STRATEGY_OPTIONS_H_
#define TUTTI_PLAN_STRATEGY_OPTIONS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/algorithm.h"

namespace tutti {

// An error such as "option seed=-1; valid: a number from 0 on".
absl::Status NotOneOf(const AlgorithmOption& option, absl::string_view value, absl::string_view valid);

// Appends `codec`, and the options of the chosen codec, to `options`, and with their defaults to those of the strategy.
// The codec is the one that `settings` ("option=value" each) name, or else the algorithm's. InvalidArgument lists all
// codecs.
absl::Status AppendCodecOptions(absl::Span<const absl::string_view> settings, std::vector<AlgorithmOption>& options,
                                Strategy& strategy);

}  // namespace tutti

#endif  // TUTTI_PLAN_STRATEGY_OPTIONS_H_
