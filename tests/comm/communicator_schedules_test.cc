// Conformance: every schedule of this build, over every transport, on real data.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/harness/world.h"
#include "tests/schedules/expected_results.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

// One call of one schedule, checked element by element; `arena`: the buffers are where peers can map them.
void RunCase(Communicator& comm, const Schedule& schedule, const CollectiveSpec& base, std::int64_t count, bool arena) {
  const Rank rank = comm.rank();
  const int size = comm.size();
  const CollectiveSpec spec = SpecOf(base, count, rank, size);
  const std::int64_t in_count = InputCount(spec, rank, size);
  const std::int64_t out_count = OutputCount(spec, rank, size);
  const std::int64_t bytes = std::max<std::int64_t>(in_count, out_count) * SizeOf(spec.dtype);
  // In place the shorter buffer is a block of the longer.
  absl::StatusOr<Buffer> shared[2] = {comm.Allocate(arena ? bytes : 0), comm.Allocate(arena ? bytes : 0)};
  std::vector<std::byte> own[2] = {std::vector<std::byte>(arena ? 0 : bytes),
                                   std::vector<std::byte>(arena ? 0 : bytes)};
  std::byte* memory[2];
  for (int i : {0, 1}) {
    ASSERT_TRUE(shared[i].ok()) << shared[i].status();
    memory[i] = arena ? shared[i]->data() : own[i].data();
  }
  std::byte* in = memory[0];
  std::byte* out = memory[base.in_place ? 0 : 1];
  if (base.in_place && in_count > 0 && out_count > 0 && in_count != out_count) {
    (in_count < out_count ? in : out) += rank * std::min(in_count, out_count) * SizeOf(spec.dtype);
  }
  for (std::int64_t i = 0; i < in_count; ++i) {
    kernels::StoreNumber(spec.dtype, in, i, InputElement(spec, rank, i));
  }
  CollectiveSpec call = spec;
  call.in_place = false;  // found out from the pointers
  const CallOptions options = {.schedule = &schedule, .factor = FactorOf(spec, rank)};
  ASSERT_EQ(comm.Call(call, in, out, options).Wait(), absl::OkStatus());
  for (std::int64_t i = 0; i < out_count; ++i) {
    ASSERT_EQ(kernels::LoadNumber(spec.dtype, out, i), OutputElement(spec, count, rank, size, i))
        << schedule.name << " " << ToString(spec) << " rank " << rank << " of " << size << " element " << i;
  }
}

using Case = std::tuple<std::string, const Schedule*>;

class CollectivesTest : public ::testing::TestWithParam<Case> {};

TEST_P(CollectivesTest, EveryWorldCountAndPlacement) {
  const std::string& transport = std::get<0>(GetParam());
  const Schedule* const schedule = std::get<1>(GetParam());
  if (schedule->collective == Collective::kSend || schedule->collective == Collective::kRecv) {
    GTEST_SKIP() << "point to point: see communicator_test.cc";
  }
  std::atomic<int> served = 0;
  std::atomic<bool> mapped = false;
  for (const int size : {1, 2, 3, 4, 5, 7, 8}) {
    RunWorld(size, {.transport = transport}, [&](Communicator& comm) {
      std::vector<std::int64_t> counts = {0, 1, size - 1, size, size + 1, 997};
      if (size <= 3) counts.push_back(100'003);
      if (schedule->collective == Collective::kBarrier) counts = {0};
      if (size > 1 && comm.plan_options().peers_mapped) mapped = true;
      for (const std::int64_t count : counts) {
        for (const bool in_place : {false, true}) {
          const CollectiveSpec spec = {.collective = schedule->collective,
                                       .op = count % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAvg,
                                       .root = static_cast<Rank>(count % size),
                                       .in_place = in_place};
          CollectiveSpec probe = SpecOf(spec, count, comm.rank(), size);
          if (!Validate(probe, comm.rank(), size).ok()) continue;  // no in-place form
          if (!schedule->supports(probe, size, comm.plan_options()).ok()) continue;
          ++served;
          RunCase(comm, *schedule, spec, count, /*arena=*/true);
          RunCase(comm, *schedule, spec, count, /*arena=*/false);
        }
      }
    });
  }
  if (schedule->supports == SupportsMappedPeers && !mapped) GTEST_SKIP() << "the ranks of this world map no peers";
  // Every rank of a world that is served has a case for each of its counts.
  EXPECT_GE(served, 30 * (schedule->collective == Collective::kBarrier ? 1 : 5));
}

TEST_P(CollectivesTest, EveryTypeAndOperator) {
  const std::string& transport = std::get<0>(GetParam());
  const Schedule* const schedule = std::get<1>(GetParam());
  if (schedule->collective == Collective::kSend || schedule->collective == Collective::kRecv) {
    GTEST_SKIP() << "point to point: see communicator_test.cc";
  }
  if (schedule->collective == Collective::kBarrier) GTEST_SKIP() << "moves no elements";
  RunWorld(3, {.transport = transport}, [&](Communicator& comm) {
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kAllReduceOps) {
        if (Reduces(schedule->collective) ? !HasOp(dtype, op) : op != ReduceOp::kSum) continue;
        for (const std::int64_t count : {5, 261}) {  // bytes: below and above what is copied to scratch
          for (const bool in_place : {false, true}) {
            if (in_place && !HasInPlaceForm(schedule->collective)) continue;
            const CollectiveSpec spec = {
                .collective = schedule->collective, .dtype = dtype, .op = op, .root = 1, .in_place = in_place};
            if (!schedule->supports(SpecOf(spec, count, comm.rank(), 3), 3, comm.plan_options()).ok()) continue;
            RunCase(comm, *schedule, spec, count, /*arena=*/in_place == (count > 5));
          }
        }
      }
    }
  });
}

std::vector<const Schedule*> Schedules() { return {AllSchedules().begin(), AllSchedules().end()}; }

INSTANTIATE_TEST_SUITE_P(, CollectivesTest,
                         ::testing::Combine(::testing::ValuesIn(WorldTransports()), ::testing::ValuesIn(Schedules())),
                         [](const auto& test) {
                           const Schedule& schedule = *std::get<1>(test.param);
                           return absl::StrCat(std::get<0>(test.param), "_", Name(schedule.collective), "_",
                                               schedule.name);
                         });

}  // namespace
}  // namespace tutti
