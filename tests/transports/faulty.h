// Makers of transports with faults, for the conformance suite.
#ifndef TUTTI_TESTS_TRANSPORTS_FAULTY_H_
#define TUTTI_TESTS_TRANSPORTS_FAULTY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/transports/conformance.h"
#include "tutti/faulty_transport.h"

namespace tutti {

// What a network may do to messages without losing or changing any.
inline FaultPlan Nuisances(std::uint64_t seed) {
  return {.seed = seed,
          .faults = {{.kind = FaultKind::kDelay, .chance = 0.3, .delay = absl::Microseconds(300)},
                     {.kind = FaultKind::kReorder, .chance = 0.3, .delay = absl::Microseconds(500)},
                     {.kind = FaultKind::kDuplicate, .chance = 0.2},
                     {.kind = FaultKind::kSlow, .delay = absl::Microseconds(20), .bytes_per_second = 2e9}}};
}

using Maker = decltype(TransportMaker::make);

inline Maker WithFaults(const Maker& make, const FaultPlan& plan) {
  return [=](int size, const TransportOptions& options) {
    std::vector<std::unique_ptr<Transport>> transports = make(size, options);
    for (std::unique_ptr<Transport>& transport : transports) {
      transport = MakeFaultyTransport(std::move(transport), plan).value();
    }
    return transports;
  };
}

}  // namespace tutti

#endif  // TUTTI_TESTS_TRANSPORTS_FAULTY_H_
