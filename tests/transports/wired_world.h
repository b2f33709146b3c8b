// Worlds of ranks on nodes of their own, whose messages go over wires, and messages that show who touches their memory.
#ifndef TUTTI_TESTS_TRANSPORTS_WIRED_WORLD_H_
#define TUTTI_TESTS_TRANSPORTS_WIRED_WORLD_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/transports/conformance.h"

namespace tutti {

// Each rank claims to be a node of its own.
inline TransportMaker Nodes(int connections) {
  return {absl::StrCat("connections_", connections), /*maps_peers=*/false,
          [connections](int size, const TransportOptions& options) {
            std::vector<std::unique_ptr<Transport>> transports;
            for (Rank rank = 0; rank < size; ++rank) {
              const UcxOptions ucx = {
                  .interface = "lo", .node = absl::StrCat("node", rank), .connections = connections};
              transports.push_back(MakeUcxTransport(ucx, options).value());
            }
            return transports;
          }};
}

inline bool IsFilledWith(const std::string& data, char c) { return data.find_first_not_of(c) == std::string::npos; }

// A message whose memory is overwritten when it ends: from then on the transport must neither read nor write there.
struct PoisonedOp : Completion {
  PoisonedOp() {
    done = [](Completion* self, const absl::Status& s) {
      auto* const op = static_cast<PoisonedOp*>(self);
      op->status = s;
      ++op->calls;
      op->as_expected = op->expected == nullptr || op->data == *op->expected;
      std::fill(op->data.begin(), op->data.end(), 'p');
    };
  }
  PoisonedOp(const PoisonedOp&) = delete;
  PoisonedOp& operator=(const PoisonedOp&) = delete;

  std::string data;
  const std::string* expected = nullptr;  // compared with `data` at the end
  bool as_expected = false;
  absl::Status status;
  int calls = 0;
};

template <typename Ops>
bool AllEnded(const Ops& ops) {
  return std::all_of(ops.begin(), ops.end(), [](const auto& op) { return op.calls > 0; });
}

// Calls `act` for both ranks, at the same time.
inline void AsBoth(absl::Span<const std::unique_ptr<Transport>> transports,
                   const std::function<void(Rank, Transport&)>& act) {
  std::thread other([&] { act(1, *transports[1]); });
  act(0, *transports[0]);
  other.join();
}

// Connects two ranks, and returns their addresses.
inline std::vector<std::string> ConnectBoth(absl::Span<const std::unique_ptr<Transport>> transports) {
  const std::vector<std::string> addresses = {*transports[0]->Address(), *transports[1]->Address()};
  AsBoth(transports, [&](Rank rank, Transport& me) {
    EXPECT_EQ(me.Connect(rank, addresses, absl::Now() + absl::Minutes(1)), absl::OkStatus());
  });
  return addresses;
}

}  // namespace tutti

#endif  // TUTTI_TESTS_TRANSPORTS_WIRED_WORLD_H_
