// Tests of the contract of include/tutti/transport.h. A transport is tested by instantiating the suite with a maker
// (inproc_test.cc is an example); docs/adding_a_transport.md explains the contract.
#ifndef TUTTI_TESTS_TRANSPORTS_CONFORMANCE_H_
#define TUTTI_TESTS_TRANSPORTS_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tutti/transport.h"

namespace tutti {

// One way to make the transports of a world whose ranks are threads.
struct TransportMaker {
  std::string name;
  bool maps_peers = true;
  std::function<std::vector<std::unique_ptr<Transport>>(int size, const TransportOptions&)> make = nullptr;
  bool receives_from_any = true;
  bool is_prompt = true;  // false: a message may be under way for a while after its Send and a Drain
};

inline std::string NameOfMaker(const testing::TestParamInfo<TransportMaker>& maker) { return maker.param.name; }
inline void PrintTo(const TransportMaker& maker, std::ostream* os) { *os << maker.name; }

// A Send or Recv that remembers how often and how it ended.
struct Op : Completion {
  Op() {
    done = [](Completion* self, const absl::Status& s) {
      auto* op = static_cast<Op*>(self);
      op->status = s;
      ++op->calls;
    };
  }
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  absl::Status status;
  int calls = 0;
};

// One rank of a test, which drives its transport without spinning.
class RankDriver {
 public:
  RankDriver(Rank r, Transport* t, std::function<void()> wake_all)
      : rank(r), transport(*t), wake_all_(std::move(wake_all)) {}

  // Moves messages until `done` returns true; fails the test after a minute. The rank that makes `done` true then calls
  // WakeAll.
  void DriveUntil(const std::function<bool()>& done);
  void Await(std::initializer_list<const Op*> ops);
  // The cause of the first loss that Check lists; OK when it lists none.
  absl::Status FirstLoss();
  // Drives until Check lists a loss, and returns the cause of the first.
  absl::Status AwaitError();
  // Moves messages as DriveUntil does, and calls Check every few milliseconds, as the engine does.
  void CheckUntil(const std::function<bool()>& done);
  void WakeAll() { wake_all_(); }

  void Send(Rank to, std::uint64_t tag, const std::string& data, Op* op) {
    transport.endpoint(to).Send(tag, data.data(), static_cast<std::int64_t>(data.size()), op);
  }
  void Recv(Rank from, std::uint64_t tag, std::string* data, Op* op) {
    transport.endpoint(from).Recv(tag, data->data(), static_cast<std::int64_t>(data->size()), op);
  }
  // Sends `out` to a peer that makes this call, too, and returns as many bytes of that peer.
  std::string Exchange(Rank peer, std::uint64_t tag, const std::string& out) {
    std::string in(out.size(), '?');
    Op sent, received;
    Send(peer, tag, out, &sent);
    Recv(peer, tag, &in, &received);
    Await({&sent, &received});
    return in;
  }

  const Rank rank;
  Transport& transport;

 private:
  std::function<void()> wake_all_;
};

// The bytes of a message whose Send does not end while nobody receives the message: more than any transport takes over
// before (the UCX transport: 8 MiB for a peer on another node).
inline constexpr std::size_t kLongerThanBuffers = 12'000'000;

class TransportConformance : public testing::TestWithParam<TransportMaker> {
 protected:
  // Runs `body` as every rank, each on a thread of its own, over connected transports. A rank whose body has returned
  // goes on moving messages until all have; then every rank says goodbye (unless it has shut down itself).
  void RunRanks(int size, const std::function<void(RankDriver&)>& body, std::int64_t region_bytes = 1 << 20);
};

// The suite of tests that take more than a second.
class TransportConformanceSlow : public TransportConformance {};

}  // namespace tutti

#endif  // TUTTI_TESTS_TRANSPORTS_CONFORMANCE_H_
