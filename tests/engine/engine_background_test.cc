// Calls in the background: right, whatever else goes on, and without polling for what takes its time.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/time/clock.h"
#include "tests/harness/world.h"
#include "tutti/transport.h"

namespace tutti {
namespace {

constexpr CallOptions kBackground = {.caller_drives = true, .background = true};

// Counts how often it is asked to move messages.
class CountedTransport final : public Transport {
 public:
  CountedTransport(std::unique_ptr<Transport> transport, std::atomic<int>& polls)
      : transport_(std::move(transport)), polls_(polls) {}

  absl::string_view name() const override { return transport_->name(); }
  MappedRegion region() const override { return transport_->region(); }
  absl::StatusOr<std::string> Address() override { return transport_->Address(); }
  absl::Status Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time deadline) override {
    return transport_->Connect(rank, addresses, deadline);
  }
  Endpoint& endpoint(Rank peer) override { return transport_->endpoint(peer); }
  bool Progress() override {
    ++polls_;
    return transport_->Progress();
  }
  bool Drain() override { return transport_->Drain(); }
  void Sleep(absl::Time until) override { transport_->Sleep(until); }
  void Wake() override { transport_->Wake(); }
  absl::Status Check() override { return transport_->Check(); }
  void Shutdown(const absl::Status& cause) override { transport_->Shutdown(cause); }

 private:
  const std::unique_ptr<Transport> transport_;
  std::atomic<int>& polls_;
};

// How often rank 0 of two looks for messages while `body` runs. They send messages even if they could map memory.
int PollsOf(const std::string& transport, const std::function<void(Communicator&)>& body) {
  std::atomic<int> polls = 0;
  int polls_of_body = 0;
  const WorldOptions options = {
      .transport = transport,
      .communicator = {.timeout = absl::Seconds(60), .mapping = CommunicatorOptions::Mapping::kNever},
      .ranks_per_node = 1,
      .wrap = [&](Rank rank, std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
        if (rank != 0) return inner;
        return std::make_unique<CountedTransport>(std::move(inner), polls);
      }};
  RunWorld(2, options, [&](Communicator& comm) {
    ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
    const int before = polls;
    body(comm);
    if (comm.rank() == 0) polls_of_body = polls - before;
  });
  return polls_of_body;
}

TEST(BackgroundTest, NobodyPollsForASlowPeer) {
  constexpr int kMessages = 20;
  const int polls = PollsOf("inproc", [](Communicator& comm) {
    std::int32_t value = 0;
    for (std::int32_t i = 0; i < kMessages; ++i) {
      if (comm.rank() == 1) {
        absl::SleepFor(absl::Milliseconds(20));
        ASSERT_EQ(comm.Send(&i, 1, DType::kI32, /*to=*/0).Wait(), absl::OkStatus());
      } else {
        ASSERT_EQ(comm.Recv(&value, 1, DType::kI32, /*from=*/1, kBackground).Wait(), absl::OkStatus());
        EXPECT_EQ(value, i);
      }
    }
  });
  // A caller that polls before it sleeps does so at least 100 times for each.
  EXPECT_LE(polls, 40 * kMessages);
}

// A wake-up that took only the first 8 KB of a socket would leave the link idle until the next.
TEST(BackgroundTest, TakesAllThatASocketHolds) {
  if (!absl::c_linear_search(WorldTransports(), "ucx")) GTEST_SKIP() << "this build has no UCX, and so no sockets";
  constexpr std::int64_t kBytes = 32 << 20;
  const int polls = PollsOf("ucx", [](Communicator& comm) {
    std::vector<char> data(kBytes, static_cast<char>(comm.rank()));
    Work work = comm.rank() == 1 ? comm.Send(data.data(), kBytes, DType::kU8, /*to=*/0, kBackground)
                                 : comm.Recv(data.data(), kBytes, DType::kU8, /*from=*/1, kBackground);
    ASSERT_EQ(work.Wait(), absl::OkStatus());
    EXPECT_EQ(data, std::vector<char>(kBytes, 1));
  });
  EXPECT_LE(polls, 400);  // it takes 150, and would take 800
}

class BackgroundWorldTest : public ::testing::TestWithParam<std::string> {};

TEST_P(BackgroundWorldTest, SumsWhileOtherCallsGoOn) {
  for (const int ranks_per_node : {0, 1, 2}) {
    RunWorld(4, {.transport = GetParam(), .ranks_per_node = ranks_per_node}, [](Communicator& comm) {
      constexpr std::int64_t kCount = 100'003;
      absl::StatusOr<std::unique_ptr<Communicator>> own = comm.Split(/*color=*/0, /*key=*/comm.rank());
      ASSERT_TRUE(own.ok()) << own.status();
      std::thread background([&] {
        std::vector<float> values(kCount);
        for (int round = 0; round < 5; ++round) {
          for (std::int64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(comm.rank() + i % 7);
          ASSERT_EQ(
              (*own)->AllReduce(values.data(), values.data(), kCount, DType::kF32, ReduceOp::kSum, kBackground).Wait(),
              absl::OkStatus());
          for (std::int64_t i = 0; i < kCount; ++i) ASSERT_EQ(values[i], static_cast<float>(6 + 4 * (i % 7)));
        }
      });
      for (int call = 0; call < 50; ++call) {
        std::int32_t value = comm.rank();
        ASSERT_EQ(comm.AllReduce(&value, &value, 1, DType::kI32, ReduceOp::kSum).Wait(), absl::OkStatus());
        ASSERT_EQ(value, 6);
      }
      background.join();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(, BackgroundWorldTest, ::testing::ValuesIn(WorldTransports()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tutti
