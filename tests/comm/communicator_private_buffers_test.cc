// Calls with buffers in ordinary memory, which peers cannot map, on all ranks or on some.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "tests/comm/checked_call.h"
#include "tests/harness/calls.h"
#include "tests/harness/rank_barrier.h"
#include "tests/harness/world.h"
#include "tests/kernels/differences.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr Collective kStaged[] = {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                                  Collective::kBroadcast, Collective::kReduce,        Collective::kGather,
                                  Collective::kScatter,   Collective::kAllToAll,      Collective::kAllToAllV};

class PrivateBuffersTest : public ::testing::TestWithParam<std::string> {};
class PrivateBuffersSlowTest : public PrivateBuffersTest {};

TEST_P(PrivateBuffersSlowTest, OfAllRanksOrSomeServeEveryCollective) {
  const std::pair<const char*, std::function<bool(Rank)>> placements[] = {
      {"none in the arena", [](Rank) { return false; }},
      {"the first in the arena", [](Rank rank) { return rank == 0; }},
      {"all but the first in the arena", [](Rank rank) { return rank != 0; }},
  };
  constexpr std::int64_t kSeveralStages = 200'007;
  for (const int size : {1, 3}) {
    RunWorld(size, {.transport = GetParam()}, [&](Communicator& comm) {
      if (comm.plan_options().all_mapped() && size > 1) {
        EXPECT_EQ(comm.PlanFor({.count = kSeveralStages}, {}, true)->name, "all_reduce:staged");
        EXPECT_NE(comm.PlanFor({.count = kSeveralStages}, {}, false)->name, "all_reduce:staged");
      }
      for (const auto& [name, arena] : placements) {
        SCOPED_TRACE(name);
        for (const Collective collective : kStaged) {
          for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, kSeveralStages}) {
            for (const bool in_place : {false, true}) {
              if (in_place && !(HasInPlaceForm(collective) && arena(0))) continue;
              const CollectiveSpec spec = {
                  .collective = collective, .root = static_cast<Rank>(count % size), .in_place = in_place};
              CheckedCall(comm, nullptr, spec, count, arena(comm.rank()));
            }
          }
        }
      }
    });
  }
}

// Rank 0 only sends, the last rank only receives, and rank 1 does neither: their own steps do not show that peers touch
// no buffers.
TEST_P(PrivateBuffersTest, OfAnAllToAllVAreNotCopiedWhole) {
  RunWorld(4, {.transport = GetParam()}, [&](Communicator& comm) {
    const auto count = [](Rank from, Rank to) {
      if (from == 1 || to == 1 || to == 0 || from == 3) return 0;
      return 100'000 * (from + 1);
    };
    std::vector<std::int64_t> sent;
    std::vector<std::int64_t> received;
    for (Rank peer = 0; peer < comm.size(); ++peer) {
      sent.push_back(count(comm.rank(), peer));
      received.push_back(count(peer, comm.rank()));
    }
    std::vector<std::int32_t> in(static_cast<std::size_t>(std::accumulate(sent.begin(), sent.end(), 0)));
    std::vector<std::int32_t> out(static_cast<std::size_t>(std::accumulate(received.begin(), received.end(), 0)));
    std::vector<std::int32_t> expected;
    for (Rank peer = 0; peer < comm.size(); ++peer) {
      for (std::int32_t i = 0; i < received[peer]; ++i) expected.push_back(4 * i + peer);
    }
    for (int round = 0; round < 3; ++round) {
      std::size_t at = 0;
      for (const std::int64_t block : sent) {
        for (std::int32_t i = 0; i < block; ++i) in[at++] = 4 * i + comm.rank();
      }
      std::fill(out.begin(), out.end(), -1);
      const absl::Status status = comm.AllToAllV(in.data(), sent, out.data(), received, DType::kI32).Wait();
      ASSERT_EQ(status, absl::OkStatus());
      EXPECT_EQ(out, expected);
    }
    // Blocks for other ranks pass through slots, unless these ranks read them; outputs are written where they lie.
    const std::int64_t passed = comm.plan_options().reads_processes ? 0 : std::ssize(in) - sent[comm.rank()];
    EXPECT_EQ(comm.counters().staged_bytes, 3 * passed * 4);
    EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
  });
}

// Collectives that move data and reduce nothing.
constexpr Collective kMoving[] = {Collective::kBroadcast, Collective::kScatter,  Collective::kGather,
                                  Collective::kAllGather, Collective::kAllToAll, Collective::kAllToAllV};

// Where ranks can read each other's processes, they copy from the buffers of their peers wherever these lie, on all
// ranks or on some.
TEST_P(PrivateBuffersTest, AreReadWhereTheyLieIfProcessesCanBeRead) {
  constexpr std::int64_t kSeveralSegments = 300'001;  // enough, too, where ranks outnumber processors
  for (const int size : {2, 3}) {
    RunWorld(size, {.transport = GetParam()}, [&](Communicator& comm) {
      if (!comm.plan_options().reads_processes) GTEST_SKIP() << "the transport reads no process";
      for (const int in_arena : {0, 1, size - 1}) {  // the first ranks
        for (const Collective collective : kMoving) {
          for (const bool in_place : {false, true}) {
            const bool arena = comm.rank() < in_arena;
            if (in_place && !HasInPlaceForm(collective)) continue;
            const CollectiveSpec spec = {.collective = collective, .root = size - 1, .in_place = in_place};
            const std::int64_t before = comm.counters().staged_bytes;
            CheckedCall(comm, nullptr, spec, kSeveralSegments, arena);
            // Ranks may outnumber processors here, where no broadcast reads.
            if (collective == Collective::kBroadcast && size > 2) continue;
            EXPECT_EQ(comm.counters().staged_bytes, before) << Name(collective);
          }
        }
      }
    });
  }
}

// A page that no other process may read, not even with the right to read this one.
class SecretMemory {
 public:
  // `place`: memory that is replaced; null: there is none.
  explicit SecretMemory(std::size_t bytes, void* place = nullptr)
      : bytes_(bytes), file_(static_cast<int>(::syscall(SYS_memfd_secret, 0))) {
    if (!file_.valid() || ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) return;
    const int fixed = place != nullptr ? MAP_FIXED : 0;
    memory_ = mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | fixed, file_.get(), 0);
  }
  ~SecretMemory() {
    if (exists()) munmap(memory_, bytes_);
  }
  SecretMemory(const SecretMemory&) = delete;
  SecretMemory& operator=(const SecretMemory&) = delete;

  bool exists() const { return memory_ != MAP_FAILED; }
  float* data() const { return static_cast<float*>(memory_); }

 private:
  const std::size_t bytes_;
  const UniqueFd file_;
  void* memory_ = MAP_FAILED;
};

// A rank whose buffer its peers cannot read, as memory of a device may be, copies that buffer to where they can.
TEST_P(PrivateBuffersTest, ThatPeersCannotReadAreStaged) {
  constexpr std::int64_t kCount = 100'000;
  RunWorld(2, {.transport = GetParam()}, [&](Communicator& comm) {
    const SecretMemory secret(2 * kCount * sizeof(float));
    if (!secret.exists()) GTEST_SKIP() << "this system has no memfd_secret";
    std::vector<float> ordinary(2 * kCount);
    absl::StatusOr<Buffer> arena = comm.Allocate(2 * kCount * 4);
    ASSERT_TRUE(arena.ok()) << arena.status();
    // The last call is made as the one before, with a buffer in the arena, of which nothing is staged.
    for (const int round : {0, 1, 2}) {
      const bool in_place = round > 0;
      float* const own = round == 2 ? arena->as<float>().data() : ordinary.data();
      float* const out = comm.rank() == 0 && round == 1 ? secret.data() : own;
      float* const in = in_place ? out + comm.rank() * kCount : comm.rank() == 0 ? secret.data() : ordinary.data();
      std::vector<float> result(in_place ? 0 : 2 * kCount);
      float* const all = in_place ? out : result.data();
      std::fill(out, out + 2 * kCount, -1.0f);
      std::fill(in, in + kCount, static_cast<float>(comm.rank() + 5));
      const std::int64_t before = comm.counters().staged_bytes;
      ASSERT_EQ(comm.AllGather(in, all, kCount, DType::kF32).Wait(), absl::OkStatus());
      EXPECT_EQ(std::count(all, all + kCount, 5.0f), kCount);
      EXPECT_EQ(std::count(all + kCount, all + 2 * kCount, 6.0f), kCount);
      if (!comm.plan_options().reads_processes) continue;
      const std::int64_t blocks = round == 0 ? 1 : round == 1 ? 4 : 0;  // in place the whole output, in and out
      EXPECT_EQ(comm.counters().staged_bytes - before, comm.rank() == 1 ? 0 : blocks * kCount * 4);
    }
    EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
  });
}

// Memory that peers can read is asked about again where a call has the same address as the call before.
TEST_P(PrivateBuffersTest, ThatPeersCannotReadAnyMoreAreStaged) {
  constexpr std::int64_t kCount = 100'000;
  RunWorld(2, {.transport = GetParam()}, [&](Communicator& comm) {
    const std::size_t bytes = kCount * sizeof(float);
    void* const place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(place, MAP_FAILED);
    auto* const in = static_cast<float*>(place);
    std::vector<float> out(2 * kCount);
    const CollectiveSpec spec{.collective = Collective::kAllGather, .count = kCount};
    absl::StatusOr<BoundPlan> bound = comm.Bind(spec, {.in = in, .out = out.data()});
    ASSERT_TRUE(bound.ok()) << bound.status();
    std::optional<SecretMemory> secret;
    for (const int round : {0, 1, 2}) {
      if (round == 1) secret.emplace(bytes, place);
      if (round > 0 && !secret->exists()) GTEST_SKIP() << "this system has no memfd_secret";
      const auto first = static_cast<float>(10 * round);
      std::fill(in, in + kCount, first + static_cast<float>(comm.rank()));
      for (const bool is_bound : {false, true}) {
        std::fill(out.begin(), out.end(), -1.0f);
        Work gathered = is_bound ? bound->Start() : comm.AllGather(in, out.data(), kCount, DType::kF32);
        ASSERT_EQ(gathered.Wait(), absl::OkStatus()) << "round " << round << ", bound " << is_bound;
        EXPECT_EQ(std::count(out.begin(), out.begin() + kCount, first), kCount);
        EXPECT_EQ(std::count(out.begin() + kCount, out.end(), first + 1), kCount);
      }
    }
  });
}

// Blocks that do not fit into all stages go on as messages, also where one call with buffers that peers can map follows
// another whose buffers they cannot map: messages are numbered alike whichever plan runs.
TEST_P(PrivateBuffersTest, OfAnAllToAllVMayBeLongerThanAllStages) {
  WorldOptions options = {.transport = GetParam()};
  options.communicator.segment_bytes = 1024;
  RunWorld(3, options, [&](Communicator& comm) {
    constexpr std::int64_t kUnit = 20'000;  // blocks of up to 60,000 elements; 256 stages hold 45,056
    for (int round = 0; round < 6; ++round) {
      const bool arena = round % 3 == 0 || (round % 3 == 1 && comm.rank() == 1);
      CheckedCall(comm, nullptr, {.collective = Collective::kAllToAllV}, kUnit + round, arena);
    }
  });
}

// Two groups make a call each at once; one of the calls has buffers that peers can map.
TEST_P(PrivateBuffersTest, GoWithCallsOfOtherGroups) {
  RunWorld(3, {.transport = GetParam()}, [&](Communicator& comm) {
    auto group = comm.Group({0, 1, 2}, "same");
    ASSERT_TRUE(group.ok()) << group.status();
    constexpr std::int64_t kCount = 400'000;
    absl::StatusOr<Buffer> mapped = comm.Allocate(kCount * 4);
    ASSERT_TRUE(mapped.ok());
    std::vector<float> own(kCount);
    float* const of_arena = mapped->as<float>().data();
    for (int round = 0; round < 5; ++round) {
      for (std::int64_t i = 0; i < kCount; ++i) own[i] = of_arena[i] = static_cast<float>(i % 7);
      const bool swapped = (comm.rank() + round) % 2 != 0;
      Communicator& first = swapped ? **group : comm;
      Communicator& second = swapped ? comm : **group;
      const auto start = [&](Communicator& on) {
        float* const data = &on == &comm ? own.data() : of_arena;
        return on.AllReduce(data, data, kCount, DType::kF32, ReduceOp::kSum);
      };
      Work one = start(first);
      Work two = start(second);
      ASSERT_EQ(one.Wait(), absl::OkStatus());
      ASSERT_EQ(two.Wait(), absl::OkStatus());
      const auto sum = [](std::int64_t i) { return static_cast<float>(i % 7 * 3); };
      ASSERT_EQ(kernels::FirstDifference(own, sum), "");
      ASSERT_EQ(kernels::FirstDifference(absl::MakeConstSpan(of_arena, kCount), sum), "");
    }
  });
}

// A rank that has no room for the slots ends the call on all ranks, and the group goes on.
TEST_P(PrivateBuffersTest, FindNoRoomOnOneRankAndTheGroupGoesOn) {
  RunWorld(3, {.transport = GetParam(), .region_bytes = 16 << 20}, [&](Communicator& comm) {
    if (!comm.plan_options().all_mapped()) GTEST_SKIP() << "nothing is staged";
    constexpr std::int64_t kCount = 200'000;
    std::vector<float> own(kCount, 1);
    absl::StatusOr<Buffer> mine = comm.Allocate(kCount * 4);
    ASSERT_TRUE(mine.ok());
    std::vector<Buffer> taken;
    if (comm.rank() == 1) {  // rank 1 has its buffer in the arena; in the call it learns that the others' are not
      for (std::int64_t bytes = 8 << 20; bytes >= 4096; bytes /= 2) {
        for (absl::StatusOr<Buffer> some = comm.Allocate(bytes); some.ok(); some = comm.Allocate(bytes)) {
          taken.push_back(*std::move(some));
        }
      }
    }
    ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
    void* const data = comm.rank() == 1 ? static_cast<void*>(mine->data()) : own.data();
    const absl::Status status = comm.AllReduce(data, data, kCount, DType::kF32, ReduceOp::kSum).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(comm.rank() == 1 ? "set TUTTI_ARENA_BYTES" : "rank 1"));
    ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
    taken.clear();
    EXPECT_EQ(comm.AllReduce(data, data, kCount, DType::kF32, ReduceOp::kSum).Wait(), absl::OkStatus());
  });
}

// Buckets of a strategy pass through scratch in stages as the buffers of a call do, wherever they lie on other ranks.
TEST_P(PrivateBuffersTest, OfAStrategyAreNotStagedWhole) {
  constexpr std::int64_t kCount = 400'007;
  for (const int ordinary : {1, 3}) {  // ranks, from the first on, whose bucket lies in ordinary memory
    RunWorld(3, {.transport = GetParam()}, [&](Communicator& comm) {
      if (!comm.plan_options().all_mapped()) GTEST_SKIP() << "nothing is staged";
      std::vector<float> mine(kCount);
      absl::StatusOr<Buffer> arena = comm.Allocate(kCount * 4);
      ASSERT_TRUE(arena.ok());
      const bool is_ordinary = comm.rank() < ordinary;
      const absl::Span<float> bucket = is_ordinary ? absl::MakeSpan(mine) : arena->as<float>().first(kCount);
      absl::StatusOr<BoundPlan> bound =
          comm.Bind(*ParseStrategy("gradient_allreduce"), DType::kF32, kCount, 0, {.out = bucket.data()});
      ASSERT_TRUE(bound.ok()) << bound.status();
      for (int step = 0; step < 6; ++step) {
        std::fill(bucket.begin(), bucket.end(), static_cast<float>(step + 3 * comm.rank()));
        const std::int64_t before = comm.counters().staged_bytes;
        ASSERT_EQ(bound->Start().Wait(), absl::OkStatus());
        ASSERT_EQ(std::count(bucket.begin(), bucket.end(), static_cast<float>(step + 3)), kCount);
        const std::int64_t staged = comm.counters().staged_bytes - before;
        EXPECT_EQ(staged > 0, is_ordinary);
        EXPECT_LE(staged, kCount * 4) << "a whole copy, in and out, would be twice as much";
      }
    });
  }
}

// A rank that names the schedule has one plan; ranks that leave the choice to Tutti have two plans, and branch after
// what both begin with. The two kinds of ranks make different calls.
TEST_P(PrivateBuffersTest, OfACallWhoseScheduleOneRankNamesAreNoneOfTheOthers) {
  RunWorld(2, {.transport = GetParam()}, [&](Communicator& comm) {
    if (!comm.plan_options().all_mapped()) GTEST_SKIP() << "nothing is staged";
    constexpr std::int64_t kCount = 400'000;
    absl::StatusOr<Buffer> mine = comm.Allocate(kCount * 4);
    ASSERT_TRUE(mine.ok());
    float* const data = mine->as<float>().data();
    const absl::StatusOr<Plan> chosen = comm.PlanFor({.count = kCount, .in_place = true});
    ASSERT_TRUE(chosen.ok());
    const Schedule* const named =
        *FindSchedule(Collective::kAllReduce, chosen->name.substr(chosen->name.find(':') + 1));
    const CallOptions options = {.schedule = comm.rank() == 0 ? named : nullptr};
    const absl::Status status = comm.AllReduce(data, data, kCount, DType::kF32, ReduceOp::kSum, options).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  });
}

// One rank never makes the call and has left; another is late: the group hears of the one that has left, although it
// waits for the late one first. Tested with a short call, and with a call in which ranks agree whether buffers are
// private.
TEST_P(PrivateBuffersTest, WhoHasLeftIsFoundBehindWhoIsLate) {
  for (const std::int64_t count : {64, 400'000}) {
    RankBarrier ranks(3);
    RunWorld(3, {.transport = GetParam(), .barrier = &ranks}, [&](Communicator& comm) {
      auto group = comm.Group({0, 1, 2}, "of three");
      ASSERT_TRUE(group.ok()) << group.status();
      if (!comm.plan_options().all_mapped()) GTEST_SKIP() << "nothing is staged";
      if (comm.rank() == 2) group->reset();
      if (comm.rank() == 0) {
        std::vector<float> own(static_cast<std::size_t>(count), 1);
        const absl::Status status =
            (*group)->AllReduce(own.data(), own.data(), count, DType::kF32, ReduceOp::kSum).Wait();
        EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 has left"));
      }
      ranks.Wait();  // rank 1 has not left when rank 0 is told
    });
  }
}

// Rank 0 reads the input of every other rank, and all read the scratch of rank 0.
void SumOnTheFirst(PlanBuilder& b) {
  const Ref sum = b.Scratch(b.in().dtype, b.in().count());
  b.Signal();
  b.WaitAll();
  if (b.rank() == 0) {
    std::vector<Ref> inputs = {b.in()};
    for (Rank peer = 1; peer < b.size(); ++peer) inputs.push_back(b.in().At(peer));
    b.Reduce(sum, inputs, b.spec().op);
  }
  b.Signal();
  b.WaitAll();
  b.Copy(b.out(), b.rank() == 0 ? sum : sum.At(0));
}

constexpr Schedule kByLeader = {
    .collective = Collective::kAllReduce,
    .name = "by_leader",
    .summary = "rank 0 sums up",
    .cost = "",
    .supports = SupportsMappedPeers,
    .build = SumOnTheFirst,
};

// The buffers of a rank that touches no buffers of its peers are staged where these touch that rank's.
TEST_P(PrivateBuffersTest, AreStagedWherePeersTouchThemAlone) {
  RunWorld(3, {.transport = GetParam()}, [](Communicator& comm) {
    if (!comm.plan_options().all_mapped()) GTEST_SKIP() << "nothing is staged";
    const std::vector<float> in(100, static_cast<float>(comm.rank() + 1));
    std::vector<float> out(100);
    const CallOptions with = {.schedule = &kByLeader};
    EXPECT_EQ(comm.AllReduce(in.data(), out.data(), 100, DType::kF32, ReduceOp::kSum, with).Wait(), absl::OkStatus());
    EXPECT_EQ(out, std::vector<float>(100, 6));
    std::fill(out.begin(), out.end(), 0);
    absl::StatusOr<BoundPlan> bound =
        comm.Bind([&](Rank rank) { return BuildPlan(kByLeader, {.count = 100}, rank, 3, comm.plan_options()); },
                  {.in = in.data(), .out = out.data()});
    ASSERT_TRUE(bound.ok()) << bound.status();
    EXPECT_EQ(bound->Start().Wait(), absl::OkStatus());
    EXPECT_EQ(out, std::vector<float>(100, 6));
  });
}

TEST_P(PrivateBuffersTest, AScheduleThatTouchesThemAgainstItsWordIsRefused) {
  static constexpr Schedule kBreaksItsWord = {
      .collective = Collective::kAllReduce,
      .name = "breaks_its_word",
      .summary = "a mistake",
      .cost = "",
      .supports = SupportsMappedPeers,
      .build = SumOnTheFirst,
      .touches_only_scratch_of_peers = true,
  };
  RunWorld(2, {.transport = GetParam()}, [](Communicator& comm) {
    if (!comm.plan_options().all_mapped()) GTEST_SKIP() << "nothing is staged";
    float x = 1;
    const absl::Status status =
        comm.AllReduce(&x, &x, 1, DType::kF32, ReduceOp::kSum, {.schedule = &kBreaksItsWord}).Wait();
    EXPECT_EQ(status, absl::InvalidArgumentError(
                          "schedule all_reduce:breaks_its_word touches out@1[0,4) f32 in the plan of rank 0, but "
                          "touches_only_scratch_of_peers is true"));
  });
}

// Every rank reads the inputs of its peers.
void ReadAll(PlanBuilder& b) {
  const std::int64_t count = b.spec().count;
  b.Signal();
  b.WaitAll();
  for (int i = 0; i < b.size(); ++i) {
    const Rank peer = (b.rank() + i) % b.size();
    b.Copy(b.out().Elements(peer * count, count), peer == b.rank() ? b.in() : b.in().At(peer));
  }
  b.Signal();
  b.WaitAll();
}

// Ranks that name different schedules make different calls, also where each reads by one plan whatever the buffers.
TEST_P(PrivateBuffersTest, OfRanksThatNameDifferentReadersAreNotMixed) {
  static constexpr Schedule kForwards = {.collective = Collective::kAllGather,
                                         .name = "forwards",
                                         .summary = "every rank reads from all others",
                                         .cost = "",
                                         .supports = SupportsMappedPeers,
                                         .build = ReadAll,
                                         .only_copies_from_peers = true};
  static constexpr Schedule kOnward = {.collective = Collective::kAllGather,
                                       .name = "onward",
                                       .summary = "does the same",
                                       .cost = "",
                                       .supports = SupportsMappedPeers,
                                       .build = ReadAll,
                                       .only_copies_from_peers = true};
  RunWorld(2, {.transport = GetParam()}, [](Communicator& comm) {
    if (!comm.plan_options().all_mapped()) GTEST_SKIP() << "nothing is staged";
    const std::vector<float> in(100'000, 1);
    std::vector<float> out(200'000);
    const auto gather = [&](const Schedule& schedule) {
      return comm.AllGather(in.data(), out.data(), 100'000, DType::kF32, {.schedule = &schedule}).Wait();
    };
    EXPECT_EQ(gather(kOnward), absl::OkStatus());
    EXPECT_EQ(std::count(out.begin(), out.end(), 1.0F), 200'000);
    EXPECT_TRUE(absl::IsInvalidArgument(gather(comm.rank() == 0 ? kForwards : kOnward)));
  });
}

TEST_P(PrivateBuffersTest, AScheduleThatDoesMoreThanCopyAgainstItsWordIsRefused) {
  static constexpr Schedule kReduces = {
      .collective = Collective::kAllReduce,
      .name = "reduces",
      .summary = "a mistake",
      .cost = "",
      .supports = SupportsMappedPeers,
      .build = SumOnTheFirst,
      .only_copies_from_peers = true,
  };
  static constexpr Schedule kReadsAnOutput = {
      .collective = Collective::kAllGather,
      .name = "reads_an_output",
      .summary = "a mistake",
      .cost = "",
      .supports = SupportsMappedPeers,
      .build =
          [](PlanBuilder& b) {
            const Ref all = b.out();
            const auto block = [&](Rank rank) { return all.Elements(rank * b.spec().count, b.spec().count); };
            b.Copy(block(b.rank()), b.in());
            b.Signal();
            b.WaitAll();
            for (Rank peer = 0; peer < b.size(); ++peer) {
              if (peer != b.rank()) b.Copy(block(peer), block(peer).At(peer));
            }
          },
      .only_copies_from_peers = true,
  };
  static constexpr Schedule kDoesNotMeet = {
      .collective = Collective::kBroadcast,
      .name = "does_not_meet",
      .summary = "a mistake",
      .cost = "",
      .supports = SupportsMappedPeers,
      .build =
          [](PlanBuilder& b) {
            b.Signal();
            b.Wait(b.rank() == 0 ? 1 : 0);
            if (b.rank() != 0) b.Copy(b.out(), Ref{.dtype = DType::kF32, .bytes = 4}.At(0));
          },
      .only_copies_from_peers = true,
  };
  RunWorld(3, {.transport = GetParam()}, [](Communicator& comm) {
    if (!comm.plan_options().all_mapped()) GTEST_SKIP() << "nothing is staged";
    float x = 1;
    EXPECT_EQ(comm.AllReduce(&x, &x, 1, DType::kF32, ReduceOp::kSum, {.schedule = &kReduces}).Wait(),
              absl::InvalidArgumentError("schedule all_reduce:reduces does not only copy from out@1[0,4) f32 in the "
                                         "plan of rank 0, but only_copies_from_peers is true"));
    float all[3];
    EXPECT_EQ(comm.AllGather(&x, all, 1, DType::kF32, {.schedule = &kReadsAnOutput}).Wait(),
              absl::InvalidArgumentError(
                  absl::StrCat("schedule all_gather:reads_an_output reads out@", comm.rank() == 0 ? "1[4,8)" : "0[0,4)",
                               " f32 in the plan of rank ", comm.rank(), ", but only_copies_from_peers is true")));
    EXPECT_EQ(comm.Broadcast(&x, &x, 1, DType::kF32, 0, {.schedule = &kDoesNotMeet}).Wait(),
              absl::InvalidArgumentError(absl::StrCat("schedule broadcast:does_not_meet does not begin with a meeting "
                                                      "of all ranks in the plan of rank ",
                                                      comm.rank(), ", but only_copies_from_peers is true")));
  });
}

INSTANTIATE_TEST_SUITE_P(, PrivateBuffersTest, ::testing::ValuesIn(WorldTransports()));
INSTANTIATE_TEST_SUITE_P(, PrivateBuffersSlowTest, ::testing::ValuesIn(WorldTransports()));

}  // namespace
}  // namespace tutti
