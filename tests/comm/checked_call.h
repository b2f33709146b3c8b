// A collective on real data whose result is compared with what it should be.
#ifndef TESTS_COMM_CHECKED_CALL_H_
#define TESTS_COMM_CHECKED_CALL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/harness/expected_results.h"
#include "tutti/communicator.h"
#include "tutti/schedule.h"

namespace tutti {

// Makes one call, by `schedule` or, when that is null, by the schedule that the selector chooses, and checks every
// element of its result. `arena`: the buffers lie in the arena, where peers can map them.
inline void CheckedCall(Communicator& comm, const Schedule* schedule, const CollectiveSpec& base, std::int64_t count,
                        bool arena) {
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
  FillInput(spec, rank, in, 0, in_count);
  CollectiveSpec call = spec;
  call.in_place = false;  // the communicator finds out from the pointers whether a call is in place
  // Some ranks take the steps of short calls themselves, others leave them to the engine's thread.
  const bool caller_drives = (rank + count) % 2 == 0;
  const CallOptions options = {.schedule = schedule, .caller_drives = caller_drives, .factor = FactorOf(spec, rank)};
  ASSERT_EQ(comm.Call(call, in, out, options).Wait(), absl::OkStatus());
  const std::optional<std::int64_t> wrong = FirstWrongElement(spec, count, rank, size, out);
  ASSERT_FALSE(wrong.has_value()) << (schedule == nullptr ? "chosen" : schedule->name) << " " << ToString(spec)
                                  << " rank " << rank << " of " << size << ": element " << *wrong << " is "
                                  << kernels::LoadNumber(spec.dtype, out, *wrong) << ", not "
                                  << OutputElement(spec, count, rank, size, *wrong);
}

}  // namespace tutti

#endif  // TESTS_COMM_CHECKED_CALL_H_
