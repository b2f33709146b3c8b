#include "sync/caller.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

// The largest number that a caller of this process has been given.
std::atomic<std::int32_t> last_number = 0;

void RaiseTo(std::int32_t number) {
  std::int32_t last = last_number.load(std::memory_order_relaxed);
  while (last < number && !last_number.compare_exchange_weak(last, number, std::memory_order_relaxed)) {
  }
}

}  // namespace

absl::StatusOr<Caller> Caller::Create(Communicator& communicator, CallOwner::Kind kind) {
  // Ranks may have made different numbers of callers before, in other groups, so all take the largest number.
  std::int32_t number = last_number.load(std::memory_order_relaxed) + 1;
  const CallOptions own{.schedule = &kSelectorsChoice, .caller_drives = true};
  Work largest = communicator.AllReduce(&number, &number, 1, DType::kI32, ReduceOp::kMax, own);
  if (absl::Status status = largest.Wait(); !status.ok()) return status;
  if (number > std::int32_t{CallOwner::kMaxNumber}) {
    return absl::ResourceExhaustedError(absl::StrCat("rank ", communicator.rank(), ": the ", CallOwner::kMaxNumber,
                                                     " numbers of synchronizers and buckets have all been given"));
  }
  RaiseTo(number);
  return Caller(kind, static_cast<std::uint32_t>(number));
}

CallOptions Caller::Sign(Purpose purpose, std::uint64_t round, CallOptions options) const {
  options.owner = CallOwner{kind_, purpose, number_}.Pack();
  options.round = round;
  // The schedules that a user has named for calls are for the user's own calls, and for the sums of a Flush, which
  // depend on the schedule.
  const bool users = purpose == Purpose::kUser || purpose == Purpose::kFlush;
  if (!users && options.schedule == nullptr) options.schedule = &kSelectorsChoice;
  return options;
}

}  // namespace tutti
