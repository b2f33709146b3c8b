// Which communicators NCCL is asked for, and which thread asks: calls are made in the calling thread, unless NCCL may
// wait for peers in them.
#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transports/nccl/nccl_world.h"

namespace tutti::nccl {
namespace {

std::atomic<std::thread::id> last_caller;

// The fake NCCL, which remembers the thread that made the last group.
Library Remembering() {
  Library table = FakeNccl::Table();
  table.group_end = [] {
    last_caller = std::this_thread::get_id();
    return FakeNccl::Table().group_end();
  };
  return table;
}

// Whether this thread has made the group.
bool MadeHere(const NcclRank& self, const std::vector<NativeCall>& calls) {
  EXPECT_EQ(self.Perform(calls), absl::OkStatus());
  return last_caller.load() == std::this_thread::get_id();
}

TEST(NcclTransportThreadsTest, OnlyTheFirstGroupOfAKindIsMadeByAnotherThread) {
  NcclWorld(1, Remembering()).Run([](NcclRank& self) {
    std::vector<float> data(64);
    const NativeCall sum = {.count = 4, .src = data.data(), .dst = data.data()};
    EXPECT_FALSE(MadeHere(self, {sum}));
    EXPECT_TRUE(MadeHere(self, {sum}));
    NativeCall longer = sum;
    longer.count = 8;
    EXPECT_FALSE(MadeHere(self, {longer}));
    EXPECT_TRUE(MadeHere(self, {longer}));
    EXPECT_FALSE(MadeHere(self, {sum, longer}));
    EXPECT_TRUE(MadeHere(self, {sum, longer}));
  });
}

TEST(NcclTransportThreadsTest, MessagesOfAnyLengthFollowTheFirstOne) {
  NcclWorld(1, Remembering()).Run([](NcclRank& self) {
    std::vector<float> out(64);
    std::vector<float> in(64);
    for (const std::int64_t count : {4, 64, 1}) {
      const bool here = MadeHere(self, {{.collective = Collective::kSend, .count = count, .src = out.data()},
                                        {.collective = Collective::kRecv, .count = count, .dst = in.data()}});
      EXPECT_EQ(here, count != 4);
    }
  });
}

TEST(NcclTransportThreadsTest, GroupsAreMadeByAnotherThreadWhileMemoryIsRegistered) {
  NcclWorld(1, Remembering()).Run([](NcclRank& self) {
    float data = 1;
    const NativeCall call = {.count = 1, .src = &data, .dst = &data};
    EXPECT_EQ(self.Perform({call}), absl::OkStatus());
    EXPECT_EQ(self.transport->Register(&data, sizeof data).value(), true);
    EXPECT_FALSE(MadeHere(self, {call}));
    EXPECT_EQ(self.transport->Unregister(&data), absl::OkStatus());
    EXPECT_TRUE(MadeHere(self, {call}));
  });
}

TEST(NcclTransportThreadsTest, EveryCapturedGroupIsMadeByAnotherThread) {
  NcclWorld(1, Remembering()).Run([](NcclRank& self) {
    const CudaRuntime& cuda = FakeCuda::Table();
    ASSERT_EQ(cuda.set_device(self.rank), kCudaSuccess);
    std::vector<float> data(4, 1);
    float sum = 0;
    const NativeCall call = {.count = 1, .src = data.data(), .dst = &sum};
    EXPECT_EQ(self.Perform({call}), absl::OkStatus());
    EXPECT_TRUE(MadeHere(self, {call}));
    for (int i = 0; i < 2; ++i) {
      sum = 0;
      FakeCuda::BeginCapture(self.stream);
      EXPECT_EQ(self.transport->Enqueue({call}, self.stream), absl::OkStatus());
      EXPECT_EQ(self.AwaitReady(*self.transport), absl::OkStatus());
      EXPECT_NE(last_caller.load(), std::this_thread::get_id());
      FakeGraph graph;
      ASSERT_EQ(FakeCuda::EndCapture(self.stream, &graph), kCudaSuccess);
      EXPECT_EQ(sum, 0);
      FakeCuda::LaunchGraph(graph, self.stream);
      ASSERT_EQ(cuda.synchronize_stream(self.stream), kCudaSuccess);
      EXPECT_EQ(sum, 1);
    }
    EXPECT_TRUE(MadeHere(self, {call}));
  });
}

// What Connect asks for.
std::atomic<int> joined_blocking;
std::atomic<int> split_blocking;
std::atomic<int> split_share;

TEST(NcclTransportThreadsTest, ConnectJoinsWithoutAWaitAndKeepsABlockingCommunicator) {
  Library table = FakeNccl::Table();
  table.comm_init_rank_config = [](Comm* comm, int size, UniqueId id, int rank, Config* config) {
    joined_blocking = config->blocking;
    return FakeNccl::Table().comm_init_rank_config(comm, size, id, rank, config);
  };
  table.comm_split = [](Comm comm, int color, int key, Comm* made, Config* config) {
    split_blocking = config->blocking;
    split_share = config->split_share;
    return FakeNccl::Table().comm_split(comm, color, key, made, config);
  };
  const int living = FakeNccl::LivingCommunicators();
  std::atomic<int> connected = 0;
  NcclWorld(3, table).Run([&](NcclRank& self) {
    ++connected;
    while (connected.load() < self.size) std::this_thread::yield();
    EXPECT_EQ(FakeNccl::LivingCommunicators(), living + 3) << "one for each rank: that of the join is given up";
    EXPECT_EQ(self.transport->rank(), self.rank);
    EXPECT_EQ(self.transport->size(), 3);
    ++connected;
    while (connected.load() < 2 * self.size) std::this_thread::yield();
  });
  EXPECT_EQ(joined_blocking, 0);
  EXPECT_EQ(split_blocking, 1);
  EXPECT_EQ(split_share, 0);
}

// A rank that joins, and does not split, ends the others at their deadline, too.
TEST(NcclTransportThreadsTest, ConnectEndsAtItsDeadlineInTheSplit) {
  const int living = FakeNccl::LivingCommunicators();
  const UniqueId id = NewUniqueId(FakeNccl::Table()).value();
  Comm other = nullptr;
  Config config;
  config.blocking = 0;
  FakeNccl::Table().comm_init_rank_config(&other, 2, id, 1, &config);
  const absl::Status late =
      Connect({.nccl = &FakeNccl::Table(), .cuda = &FakeCuda::Table(), .size = 2, .id = id}, Soon()).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_EQ(FakeNccl::Table().comm_abort(other), Result::kSuccess);
  EXPECT_EQ(FakeNccl::LivingCommunicators(), living);
}

}  // namespace
}  // namespace tutti::nccl
