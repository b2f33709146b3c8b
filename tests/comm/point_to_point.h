// What the tests of Send and Recv share: the worlds that they run in, and messages that differ by sender, tag and
// number.
#ifndef TUTTI_TESTS_COMM_POINT_TO_POINT_H_
#define TUTTI_TESTS_COMM_POINT_TO_POINT_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/harness/world.h"

namespace tutti {

struct WorldKind {
  std::string name;
  WorldOptions options;
};

inline void PrintTo(const WorldKind& kind, std::ostream* os) { *os << kind.name; }
inline std::string NameOfWorldKind(const testing::TestParamInfo<WorldKind>& kind) { return kind.param.name; }

// Every transport, with all ranks on one node, and with every rank on a node of its own.
inline std::vector<WorldKind> WorldKinds() {
  std::vector<WorldKind> kinds;
  for (const std::string& transport : WorldTransports()) {
    for (const int ranks_per_node : {0, 1}) {
      kinds.push_back({absl::StrCat(transport, ranks_per_node == 0 ? "_on_one_node" : "_on_many_nodes"),
                       {.transport = transport, .ranks_per_node = ranks_per_node}});
    }
  }
  return kinds;
}

class PointToPoint : public ::testing::TestWithParam<WorldKind> {
 protected:
  static WorldOptions options(absl::Duration timeout = absl::Seconds(60)) {
    WorldOptions options = GetParam().options;
    options.communicator.timeout = timeout;
    return options;
  }
};

// `bytes` bytes that differ between senders, tags and numbers. Without optimization an iterator would take most of the
// time of tests with long messages.
inline std::vector<std::uint8_t> MessageOf(std::size_t bytes, Rank from, int tag, int number) {
  std::vector<std::uint8_t> message(bytes);
  auto value = static_cast<std::uint32_t>(1 + from + 31 * tag + 1009 * number);
  std::uint8_t* const data = message.data();
  for (std::size_t i = 0; i < bytes; ++i) {
    value = value * 1664525 + 1013904223;
    data[i] = static_cast<std::uint8_t>(value >> 24);
  }
  return message;
}

// Waits for all, and expects that they end OK.
inline void WaitForAll(std::vector<Work>& works) {
  for (Work& work : works) EXPECT_EQ(work.Wait(), absl::OkStatus());
}

}  // namespace tutti

#endif  // TUTTI_TESTS_COMM_POINT_TO_POINT_H_
