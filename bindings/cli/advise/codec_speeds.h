// How fast codecs encode and decode: the measurements of docs/results/codecs.md, which are part of the program.
#ifndef TUTTI_BINDINGS_CLI_ADVISE_CODEC_SPEEDS_H_
#define TUTTI_BINDINGS_CLI_ADVISE_CODEC_SPEEDS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tutti/plan.h"

namespace tutti::cli {

// The seconds for which a step that encodes or decodes occupies a processor, on a machine whose memory copies
// `copy_bytes_per_s` (CostModel): the longer one of two times. That of the arithmetic was measured with elements and
// message in the cache. That of memory was measured out of the cache, and counts as a multiple of memcpy's in the same
// round, because the memory of two machines, or of one at two moments, differs more than this multiple does. NotFound
// names the codec that was not measured with these options.
absl::StatusOr<double> CodecSeconds(const Plan& plan, const Step& step, double copy_bytes_per_s);

// The measurements as a JSON object, `now` of docs/results/codecs.json: a function that bindings/cli/CMakeLists.txt
// writes.
absl::string_view MeasuredCodecs();

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_ADVISE_CODEC_SPEEDS_H_
