#include "absl/strings/str_cat.h"
#include "tests/transports/conformance.h"

namespace tutti {
namespace {

std::vector<std::unique_ptr<Transport>> MakeOneNode(int size, const TransportOptions& options) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < size; ++rank) transports.push_back(MakeUcxTransport({}, options).value());
  return transports;
}

// Every rank claims to be a node of its own: messages go over TCP, and no memory is mapped.
std::vector<std::unique_ptr<Transport>> MakeManyNodes(int size, const TransportOptions& options) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < size; ++rank) {
    transports.push_back(MakeUcxTransport({.interface = "lo", .node = absl::StrCat("node", rank)}, options).value());
  }
  return transports;
}

INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance,
                         testing::Values(TransportMaker{.name = "one_node", .make = MakeOneNode},
                                         TransportMaker{
                                             .name = "many_nodes", .maps_peers = false, .make = MakeManyNodes}),
                         NameOfMaker);

TEST(UcxTransport, AnUnknownInterfaceIsNamedWithThoseThatExist) {
  const absl::Status status = MakeUcxTransport({.interface = "nosuch0", .node = ""}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'nosuch0'"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("lo"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace tutti
