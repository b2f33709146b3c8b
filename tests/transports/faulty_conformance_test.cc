// The conformance suite over the faulty transport, without faults and with faults that a program must not notice.
#include "tests/transports/faulty.h"

namespace tutti {
namespace {

std::vector<std::unique_ptr<Transport>> MakeInproc(int size, const TransportOptions& options) {
  const std::shared_ptr<InprocHub> hub = MakeInprocHub(size);
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < size; ++rank) transports.push_back(MakeInprocTransport(hub, options).value());
  return transports;
}

INSTANTIATE_TEST_SUITE_P(FaultyInproc, TransportConformance,
                         testing::Values(TransportMaker{.name = "no_faults", .make = WithFaults(MakeInproc, {})},
                                         TransportMaker{.name = "nuisances",
                                                        .make = WithFaults(MakeInproc, Nuisances(1)),
                                                        .receives_from_any = false,
                                                        .is_prompt = false}),
                         NameOfMaker);

}  // namespace
}  // namespace tutti
