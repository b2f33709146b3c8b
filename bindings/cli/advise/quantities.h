// Numbers with units as users write them, in decimal units: rates of links, counts, times.
#ifndef TUTTI_BINDINGS_CLI_ADVISE_QUANTITIES_H_
#define TUTTI_BINDINGS_CLI_ADVISE_QUANTITIES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tutti::cli {

// Parsers of quantities above 0; InvalidArgument shows how each is written.
//
// Parses a rate into bytes per second. Links are sold by bits: 100M, 1G, 2.5Gbit, 25Gbit/s, 100Mb/s and 10 Gbps are
// bits per second; with a capital B, 125MB, 1.25GB/s and 3GBps are bytes. A number without a unit is refused.
absl::StatusOr<double> ParseRate(absl::string_view text);
// Parses a number of things: 350K, 20M, 1.5G; B is a billion, as in names of models.
absl::StatusOr<std::int64_t> ParseCount(absl::string_view text);
// Parses a time with its unit: 50us, 2ms. 0 is a time, too.
absl::StatusOr<absl::Duration> ParseDelay(absl::string_view text);

// "1 Gbit/s", "2.5 Gbit/s".
std::string FormatRate(double bytes_per_s);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_ADVISE_QUANTITIES_H_
