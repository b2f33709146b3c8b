// Random calls, one after the other and several at once: what is kept of one call must never serve another call that
// differs from it. Every rank chooses its own memory (ordinary or the arena, aligned or not, in place or not where the
// collective has a root), and all ranks choose the same collective, counts, root and number of repetitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/harness/sweeps.h"
#include "tests/harness/world.h"
#include "tests/kernels/differences.h"

namespace tutti {
namespace {

constexpr Collective kCollectives[] = {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                                       Collective::kBroadcast, Collective::kReduce,        Collective::kGather,
                                       Collective::kScatter,   Collective::kAllToAll};
constexpr float kUntouched = -1;

// Element `i` of the input of `rank` in the call numbered `call`: small, so that sums are exact.
float InputAt(int call, Rank rank, std::int64_t i) {
  return static_cast<float>((static_cast<std::int64_t>(call) * 7 + rank * 31 + i * 3) % 1000);
}

// Element `i` of the output of `rank`.
float OutputAt(const CollectiveSpec& spec, int call, Rank rank, int size, std::int64_t i) {
  const auto sum = [&](std::int64_t at) {
    float total = 0;
    for (Rank peer = 0; peer < size; ++peer) total += InputAt(call, peer, at);
    return total;
  };
  switch (spec.collective) {
    case Collective::kReduceScatter:
      return sum(rank * spec.count + i);
    case Collective::kAllGather:
    case Collective::kGather:
      return InputAt(call, static_cast<Rank>(i / spec.count), i % spec.count);
    case Collective::kBroadcast:
      return InputAt(call, spec.root, i);
    case Collective::kScatter:
      return InputAt(call, spec.root, rank * spec.count + i);
    case Collective::kAllToAll:
      return InputAt(call, static_cast<Rank>(i / spec.count), rank * spec.count + i % spec.count);
    default:
      return sum(i);
  }
}

// Memory of one call: two areas, each as long as the longer buffer, with an element before and after it.
class Memory {
 public:
  Memory(Communicator& comm, std::int64_t elements, bool in_arena, std::int64_t offset) : offset_(offset + 1) {
    const auto length = static_cast<std::size_t>(elements + offset + 2);
    for (Area* const area : {&first_, &second_}) {
      if (in_arena) {
        absl::StatusOr<Buffer> buffer = comm.Allocate(static_cast<std::int64_t>(length * sizeof(float)));
        if (buffer.ok()) area->arena = *std::move(buffer);
      }
      if (area->arena.data() == nullptr) area->ordinary.resize(length);
      area->data = area->arena.data() != nullptr ? area->arena.as<float>().data() : area->ordinary.data();
      std::fill_n(area->data, length, kUntouched);
    }
  }
  float* first() { return first_.data + offset_; }
  float* second() { return second_.data + offset_; }

 private:
  struct Area {
    Buffer arena;
    std::vector<float> ordinary;
    float* data = nullptr;
  };
  Area first_, second_;
  std::int64_t offset_;
};

struct Call {
  CollectiveSpec spec;
  int number = 0;
  float* out = nullptr;
  std::int64_t out_count = 0;
  bool out_within_in = false;
  Work work;
};

class RandomCallsTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void Run(int size, const WorldOptions& options);
};

TEST_P(RandomCallsTest, HaveTheResultsOfTheirOwnArguments) {
  for (const int size : {2, 3}) Run(size, {.transport = GetParam()});
}

// The memory is so small that calls which are kept for their next use lose their scratch to other calls.
TEST_P(RandomCallsTest, InLittleMemoryHaveTheResultsOfTheirOwnArguments) {
  for (const int size : {2, 3}) Run(size, {.transport = GetParam(), .region_bytes = 8 << 20, .ranks_per_node = 1});
}

void RandomCallsTest::Run(int size, const WorldOptions& options) {
  constexpr int kShapes = Repetitions(400);
  RunWorld(size, options, [&](Communicator& comm) {
    std::mt19937 all(static_cast<unsigned>(size));                // equal on all ranks
    std::mt19937 mine(static_cast<unsigned>(100 + comm.rank()));  // of this rank
    std::deque<Memory> memories;                                  // of the calls of one shape
    int number = 0;
    for (int shape = 0; shape < kShapes; ++shape) {
      CollectiveSpec spec{.collective = kCollectives[all() % std::size(kCollectives)]};
      const std::uint64_t magnitude = all() % 17;
      spec.count = static_cast<std::int64_t>(all() % (std::uint64_t{1} << magnitude));
      if (HasRoot(spec.collective)) spec.root = static_cast<Rank>(all() % static_cast<unsigned>(size));
      const bool all_in_place = all() % 2 == 0;
      const int at_once = 1 + static_cast<int>(all() % 3);
      const int repetitions = static_cast<int>(all() % 6);
      const std::int64_t in_count = InputCount(spec, comm.rank(), size);
      const std::int64_t out_count = OutputCount(spec, comm.rank(), size);
      memories.clear();
      for (int i = 0; i < at_once; ++i) {
        memories.emplace_back(comm, std::max(in_count, out_count), mine() % 2 == 0, mine() % 3 == 0 ? mine() % 9 : 0);
      }
      for (int repetition = 0; repetition <= repetitions; ++repetition) {
        std::vector<Call> calls;
        for (Memory& memory : memories) {
          bool in_place = HasRoot(spec.collective) ? mine() % 2 == 0 : all_in_place;
          in_place &= spec.collective != Collective::kAllToAll && in_count > 0 && out_count > 0;
          float* in = memory.first();
          float* out = memory.second();
          if (in_place && in_count <= out_count) in = out + (in_count < out_count ? comm.rank() * in_count : 0);
          if (in_place && in_count > out_count) out = in + comm.rank() * out_count;
          for (std::int64_t i = 0; i < in_count; ++i) in[i] = InputAt(number, comm.rank(), i);
          calls.push_back({.spec = spec,
                           .number = number++,
                           .out = out,
                           .out_count = out_count,
                           .out_within_in = in_place && in_count > out_count,
                           .work = comm.Call(spec, in, out, {.caller_drives = mine() % 2 == 0})});
        }
        for (Call& call : calls) {
          ASSERT_EQ(call.work.Wait(), absl::OkStatus()) << ToString(call.spec);
          const auto expected = [&, rank = comm.rank()](std::int64_t i) {
            return OutputAt(call.spec, call.number, rank, size, i);
          };
          ASSERT_EQ(kernels::FirstDifference(absl::MakeConstSpan(call.out, call.out_count), expected), "")
              << ToString(call.spec) << " in call " << call.number;
          if (call.out_within_in) continue;
          ASSERT_EQ(call.out[-1], kUntouched) << ToString(call.spec);
          ASSERT_EQ(call.out[call.out_count], kUntouched) << ToString(call.spec);
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, RandomCallsTest, ::testing::ValuesIn(WorldTransports()),
                         [](const auto& transport) { return transport.param; });

}  // namespace
}  // namespace tutti
