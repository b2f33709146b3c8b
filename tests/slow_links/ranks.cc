// The program that slow_links_test.py runs on each of its hosts: slow_links_ranks WHAT, a rank of a job. The program
// ends with 0 when the rank has seen what it should.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "tutti/communicator.h"

namespace tutti {
namespace {

absl::Status Expect(bool right, absl::string_view what) {
  return right ? absl::OkStatus() : absl::InternalError(std::string(what));
}

// Rank 0 sends two messages, and leaves when the kernel has them; of the second, much is then still under way.
absl::Status SendAndLeave(std::unique_ptr<Communicator> world, bool only_the_group, std::int64_t first_count) {
  constexpr std::int64_t kSecond = 200'000;
  std::unique_ptr<Communicator> group;
  if (only_the_group) {
    absl::StatusOr<std::unique_ptr<Communicator>> split = world->Split(0, world->rank());
    if (!split.ok()) return split.status();
    group = *std::move(split);
  }
  std::unique_ptr<Communicator>& leaves = only_the_group ? group : world;
  std::vector<float> first(static_cast<std::size_t>(first_count), leaves->rank() == 0 ? 1 : 0);
  std::vector<float> second(kSecond, leaves->rank() == 0 ? 2 : 0);
  if (leaves->rank() == 0) {
    absl::Status status = leaves->Send(first.data(), first_count, DType::kF32, /*to=*/1).Wait();
    status.Update(leaves->Send(second.data(), kSecond, DType::kF32, /*to=*/1).Wait());
    leaves.reset();
    if (only_the_group) absl::SleepFor(absl::Seconds(3));  // so that the group alone is what this rank has left
    return status;
  }
  absl::Status status = leaves->Recv(first.data(), first_count, DType::kF32, /*from=*/0).Wait();
  status.Update(leaves->Recv(second.data(), kSecond, DType::kF32, /*from=*/0).Wait());
  status.Update(Expect(first.back() == 1 && second.back() == 2, "other bytes have come than were sent"));
  return status;
}

// The last rank ends in the middle of a long broadcast. The others make a group without it, and go on.
absl::Status SurviveABroadcast(std::unique_ptr<Communicator> world) {
  constexpr std::int64_t kCount = 2'000'000;
  const Rank last = world->size() - 1;
  std::vector<float> data(kCount, 1);
  Work broadcast = world->Broadcast(data.data(), data.data(), kCount, DType::kF32, /*root=*/0);
  if (world->rank() == last) {
    absl::SleepFor(absl::Milliseconds(300));
    _exit(0);
  }
  if (absl::Status status = Expect(!broadcast.Wait().ok(), "the broadcast has ended OK"); !status.ok()) return status;
  std::vector<Rank> members;
  for (Rank rank = 0; rank < last; ++rank) members.push_back(rank);
  absl::StatusOr<std::unique_ptr<Communicator>> survivors = world->Group(members, "survivors");
  if (!survivors.ok()) return survivors.status();
  float sum = 1;
  absl::Status status = (*survivors)->AllReduce(&sum, &sum, 1, DType::kF32, ReduceOp::kSum).Wait();
  status.Update(Expect(sum == static_cast<float>(last), "the sum of the survivors is another one"));
  return status;
}

// A group is given up while a long message of the world is on the same wire.
absl::Status GiveUpAGroup(Communicator& world) {
  constexpr std::int64_t kLong = 5'000'000;
  constexpr std::int64_t kSums = 2'500'000;  // seconds on these links: the sum is given up in its middle
  absl::StatusOr<std::unique_ptr<Communicator>> group = world.Split(0, world.rank());
  if (!group.ok()) return group.status();
  std::vector<float> values(kLong, world.rank() == 0 ? 3 : 0);
  Work message = world.rank() == 0 ? world.Send(values.data(), kLong, DType::kF32, /*to=*/1)
                                   : world.Recv(values.data(), kLong, DType::kF32, /*from=*/0);
  std::vector<float> sums(kSums, 1);
  Work sum = (*group)->AllReduce(sums.data(), sums.data(), kSums, DType::kF32, ReduceOp::kSum);
  absl::SleepFor(absl::Milliseconds(300));
  (*group)->Abort(absl::AbortedError("enough"));
  absl::Status status = Expect(!sum.Wait().ok(), "the sum of the group has ended OK");
  status.Update(message.Wait());
  status.Update(Expect(values.back() == 3, "other bytes have come than were sent"));
  return status;
}

// Rank 1 gives up a group while the answer to its message there is behind a long message of the world to rank 1.
absl::Status GiveUpASender(Communicator& world) {
  constexpr std::int64_t kLong = 4'000'000;
  constexpr std::int64_t kUnread = 2'500'000;  // more than the wire takes before the receiver has called
  absl::StatusOr<std::unique_ptr<Communicator>> group = world.Split(0, world.rank());
  if (!group.ok()) return group.status();
  std::vector<float> values(kLong, world.rank() == 0 ? 3 : 0);
  Work message = world.rank() == 0 ? world.Send(values.data(), kLong, DType::kF32, /*to=*/1)
                                   : world.Recv(values.data(), kLong, DType::kF32, /*from=*/0);
  absl::Status status;
  if (world.rank() == 1) {
    std::vector<float> unread(kUnread, 1);
    Work sends = (*group)->Send(unread.data(), kUnread, DType::kF32, /*to=*/0);
    absl::SleepFor(absl::Seconds(8));
    (*group)->Abort(absl::AbortedError("enough"));
    status.Update(Expect(!sends.Wait().ok(), "the Send of the group has ended OK"));
  }
  status.Update(message.Wait());
  status.Update(Expect(values.back() == 3, "other bytes have come than were sent"));
  return status;
}

// A short message is there long before a long one that was sent first.
absl::Status OvertakeALongMessage(Communicator& world) {
  constexpr std::int64_t kLong = 5'000'000;
  constexpr std::int64_t kShort = 20'000;
  std::vector<float> values(kLong, world.rank() == 0 ? 3 : 0);
  std::vector<float> few(kShort, world.rank() == 0 ? 4 : 0);
  if (world.rank() == 0) {
    Work first = world.Send(values.data(), kLong, DType::kF32, /*to=*/1, {.tag = 1});
    absl::SleepFor(absl::Milliseconds(500));
    absl::Status status = world.Send(few.data(), kShort, DType::kF32, /*to=*/1, {.tag = 2}).Wait();
    status.Update(first.Wait());
    return status;
  }
  Work first = world.Recv(values.data(), kLong, DType::kF32, /*from=*/0, {.tag = 1});
  absl::Status status = world.Recv(few.data(), kShort, DType::kF32, /*from=*/0, {.tag = 2}).Wait();
  status.Update(Expect(few.back() == 4 && !first.done(), "the short message came last"));
  status.Update(first.Wait());
  return status;
}

absl::Status Run(absl::string_view what) {
  const absl::StatusOr<Bootstrap> job = BootstrapFromEnvironment();
  if (!job.ok()) return job.status();
  absl::StatusOr<std::unique_ptr<Communicator>> world = Communicator::Create(*job);
  if (!world.ok()) return world.status();
  if (what == "leave_the_group") return SendAndLeave(*std::move(world), /*only_the_group=*/true, 500'000);
  if (what == "leave_the_world") return SendAndLeave(*std::move(world), /*only_the_group=*/false, 500'000);
  // So much that the receiver tells what it has matched while the sender leaves.
  if (what == "leave_a_backlog") return SendAndLeave(*std::move(world), /*only_the_group=*/false, 1'500'000);
  if (what == "survive_a_broadcast") return SurviveABroadcast(*std::move(world));
  if (what == "give_up_a_group") return GiveUpAGroup(**world);
  if (what == "give_up_a_sender") return GiveUpASender(**world);
  if (what == "overtake_a_long_message") return OvertakeALongMessage(**world);
  return absl::InvalidArgumentError("nothing that slow_links_test.py asks for");
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  const absl::Status status = tutti::Run(argc > 1 ? argv[1] : "");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
