// A tour of the communicator, part by part as in docs/communicator.md: tutti launch -n 3 -- communicator
#include "tutti/communicator.h"

#include <algorithm>
#include <cstdio>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace {

using tutti::Communicator;
using tutti::DType;
using tutti::ReduceOp;

absl::Status Expect(bool right, absl::string_view what) {
  return right ? absl::OkStatus() : absl::InternalError(absl::StrCat("not as expected: ", what));
}

// [several]
// Calls return at once; the ranks make the calls of a communicator in the same order, and wait in any order.
absl::Status SeveralCallsAtOnce(Communicator& world) {
  std::vector<float> sum(1000, 1.0F);
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(world.size()));
  const std::int32_t mine = world.rank();
  tutti::Work add = world.AllReduce(sum.data(), sum.data(), 1000, DType::kF32, ReduceOp::kSum);
  tutti::Work gather = world.AllGather(&mine, ranks.data(), 1, DType::kI32);  // count: of one rank's block
  absl::Status status = gather.Wait();
  status.Update(add.Wait());
  if (!status.ok()) return status;
  return Expect(sum[999] == static_cast<float>(world.size()) && ranks.back() == world.size() - 1,
                "the sum or the ranks");
}
// [several]

// [callback]
// The callback runs on a thread of the communicator, and may itself make calls and wait for them.
absl::Status CallsBack(Communicator& world) {
  float value = 1;
  std::promise<absl::Status> ended;
  tutti::Work work = world.AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kMax);
  work.OnDone([&](const absl::Status& status) { ended.set_value(status); });
  work.AwaitElsewhere();  // this thread waits for the callback and not in Wait
  return ended.get_future().get();
}
// [callback]

// [messages]
// Every rank but rank 0 sends it a message; rank 0 takes them as they come. A Send to a rank and a Recv from the rank
// match by their tags.
absl::Status SendsMessages(Communicator& world) {
  constexpr std::int32_t kTag = 7;
  if (world.rank() != 0) {
    const std::int64_t number = world.rank() * 100;
    return world.Send(&number, 1, DType::kI64, /*to=*/0, {.tag = kTag}).Wait();
  }
  std::int64_t sum = 0;
  for (int others = 1; others < world.size(); ++others) {
    std::int64_t number = 0;
    tutti::Work recv = world.Recv(&number, 1, DType::kI64, tutti::kAnySource, {.tag = kTag});
    if (absl::Status status = recv.Wait(); !status.ok()) return status;
    if (absl::Status status = Expect(number == recv.source() * 100, "the sender"); !status.ok()) return status;
    sum += number;
  }
  return Expect(sum == 100 * world.size() * (world.size() - 1) / 2, "the sum of the messages");
}
// [messages]

// [groups]
// The first two ranks form a group of their own. Other ranks make no call for it, and an error of the group, such as a
// timeout, would not end the world.
absl::Status MakesAGroup(Communicator& world) {
  if (world.rank() > 1 || world.size() < 2) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<Communicator>> pair = world.Group({0, 1}, "the first two");
  if (!pair.ok()) return pair.status();
  double sum = (*pair)->rank() + 1;
  const tutti::CallOptions soon = {.timeout = absl::Seconds(5)};
  absl::Status status = (*pair)->AllReduce(&sum, &sum, 1, DType::kF64, ReduceOp::kSum, soon).Wait();
  return status.ok() ? Expect(sum == 3, "the sum of the group") : status;
}
// [groups]

// [bind]
// A call that is made again and again can be bound to its memory: starting a bound plan looks nothing up and allocates
// nothing. In memory from Allocate peers read and write where it is; other memory is copied stage by stage.
absl::Status BindsACall(Communicator& world) {
  const absl::StatusOr<tutti::Buffer> memory = world.Allocate(4096 * sizeof(float));
  if (!memory.ok()) return memory.status();
  const absl::Span<float> values = memory->as<float>();
  absl::StatusOr<tutti::BoundPlan> average = world.Bind({.collective = tutti::Collective::kAllReduce,
                                                         .dtype = DType::kF32,
                                                         .op = ReduceOp::kAvg,
                                                         .count = 4096,
                                                         .in_place = true},
                                                        {.out = values.data()});
  if (!average.ok()) return average.status();
  for (int step = 0; step < 10; ++step) {
    std::fill(values.begin(), values.end(), static_cast<float>(world.rank() + step));
    if (absl::Status status = average->Start({.caller_drives = true}).Wait(); !status.ok()) return status;
  }
  const float expected = static_cast<float>(world.size() - 1) / 2 + 9;
  return Expect(values[4095] == expected, "the average");
}
// [bind]

// [errors]
// A wrong argument ends the call alone, before anything is sent; the communicator stays usable. What ends a
// communicator for good (a rank that died, a timeout, calls that do not match) is in status() from then on.
absl::Status ReportsErrors(Communicator& world) {
  float value = 1;
  const absl::Status refused = world.Broadcast(&value, &value, 1, DType::kF32, /*root=*/world.size()).Wait();
  if (absl::Status status = Expect(absl::IsInvalidArgument(refused), "a root that does not exist"); !status.ok()) {
    return status;
  }
  if (world.rank() == 0) std::printf("refused: %s\n", std::string(refused.message()).c_str());
  return world.status();  // still OK
}
// [errors]

absl::Status Tour() {
  // [create]
  // Rank, size and where the others are come from the launcher: tutti launch, torchrun, mpirun or srun.
  const absl::StatusOr<tutti::Bootstrap> job = tutti::BootstrapFromEnvironment();
  if (!job.ok()) return job.status();
  absl::StatusOr<std::unique_ptr<Communicator>> world = Communicator::Create(*job, {.timeout = absl::Seconds(30)});
  if (!world.ok()) return world.status();
  // [create]
  for (const auto part : {SeveralCallsAtOnce, CallsBack, SendsMessages, MakesAGroup, BindsACall, ReportsErrors}) {
    if (absl::Status status = part(**world); !status.ok()) return status;
  }
  // [counters]
  const tutti::Counters counters = (*world)->counters();
  if ((*world)->rank() == 0) {
    std::printf("rank 0: %lld calls, %lld bytes to and from other ranks, %lld bytes copied into the arena and out\n",
                static_cast<long long>(counters.calls), static_cast<long long>(counters.wire_bytes),
                static_cast<long long>(counters.staged_bytes));
    std::printf(
        "rank 0: the engine's thread has used %.2f %% of a processor since it started, %.2f %% to wait for peers\n",
        100 * absl::FDivDuration(counters.engine_cpu, counters.engine_wall),
        100 * absl::FDivDuration(counters.engine_waiting, counters.engine_wall));
  }
  // [counters]
  return absl::OkStatus();
}

}  // namespace

int main() {
  const absl::Status status = Tour();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
