// How fast codecs encode and decode: the measurements of docs/results/codecs.md, which are part of the program.
#ifndef TUTTI_BINDINGS_CLI_ADVISE_CODEC_SPEEDS_H_
#define TUTTI_BINDINGS_CLI_ADVISE_CODEC_SPEEDS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tutti/plan.h"

namespace tutti::cli {

// The seconds for which a step that encodes or decodes occupied a processor of the machine that was measured, with
// elements and messages out of the cache. NotFound names the codec that was not measured with these options.
absl::StatusOr<double> CodecSeconds(const Plan& plan, const Step& step);

// The measurements as a JSON object, `now` of docs/results/codecs.json: a function that bindings/cli/CMakeLists.txt
// writes.
absl::string_view MeasuredCodecs();

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_ADVISE_CODEC_SPEEDS_H_
