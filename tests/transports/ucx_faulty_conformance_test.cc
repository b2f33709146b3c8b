// The conformance suite over the faulty transport around UCX, with faults that a program must not notice.
#include "tests/transports/faulty.h"

namespace tutti {
namespace {

std::vector<std::unique_ptr<Transport>> MakeUcx(int size, const TransportOptions& options) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < size; ++rank) transports.push_back(MakeUcxTransport({}, options).value());
  return transports;
}

INSTANTIATE_TEST_SUITE_P(FaultyUcx, TransportConformance,
                         testing::Values(TransportMaker{.name = "no_faults", .make = WithFaults(MakeUcx, {})},
                                         TransportMaker{.name = "nuisances",
                                                        .make = WithFaults(MakeUcx, Nuisances(2)),
                                                        .receives_from_any = false,
                                                        .is_prompt = false}),
                         NameOfMaker);

}  // namespace
}  // namespace tutti
