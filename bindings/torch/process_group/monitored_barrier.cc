#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bindings/torch/process_group/interrupt.h"
#include "bindings/torch/process_group/process_group_tutti.h"
#include "bindings/torch/process_group/timeout.h"
#include "bindings/torch/process_group/torch_store.h"
#include "tutti/torch/errors.h"

namespace tutti::dist {
namespace {

constexpr std::chrono::milliseconds kPause(5);
constexpr char kVerdict[] = "verdict";  // the end of the key of rank 0

// Waits until `key` is in the store, at most until `deadline`; returns whether the key is there.
bool Appears(::c10d::Store& store, const std::string& key, WaitClock::time_point deadline) {
  SignalWatch signals;
  while (!store.check({key})) {
    if (WaitClock::now() >= deadline) return false;
    if (!signals.Look().ok()) RethrowInterrupt();
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

// Deletes the keys of the barrier `round`. A store that cannot delete keeps them.
void DeleteKeys(const c10::intrusive_ptr<::c10d::Store>& store, const std::string& round, int size) {
  const std::shared_ptr<Store> ours = MakeTorchStore(store);
  for (Rank rank = 0; rank < size; ++rank) (void)ours->Delete(absl::StrCat(round, rank), absl::InfiniteFuture());
  (void)ours->Delete(absl::StrCat(round, kVerdict), absl::InfiniteFuture());
}

// Text such as "Rank 1" or "Ranks 1, 2".
std::string Ranks(const std::vector<Rank>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "Rank " : "Ranks ", absl::StrJoin(ranks, ", "));
}

}  // namespace

// Every rank puts a key of its own into the store, and rank 0, which has looked for those of the others, puts its
// verdict there. Where all ranks have come to this barrier, none reads the keys of the last one any more, and rank 0
// deletes them.
void ProcessGroupTutti::monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) {
  nn::ThrowIfError(communicator()->status());  // also in a forked child
  const std::int64_t ms = options.timeout.count() > 0 ? options.timeout.count() : timeout_ms_.load();
  const WaitClock::time_point deadline = Later(WaitClock::now(), std::chrono::milliseconds(ms));
  // A program may destroy the group and make another one with the same store, where the keys of this one stay.
  const std::string barriers = absl::StrCat("tutti/monitored_barrier/", request_.attempt, "/");
  const std::uint64_t number = monitored_barriers_++;
  const std::string round = absl::StrCat(barriers, number, "/");
  const std::string verdict_key = absl::StrCat(round, kVerdict);
  ::c10d::Store& store = *store_;
  std::string verdict;  // empty: all ranks have come
  store.set(absl::StrCat(round, getRank()), "here");
  if (getRank() == 0) {
    std::vector<Rank> missing;
    for (Rank rank = 1; rank < getSize() && (wait_all_ranks || missing.empty()); ++rank) {
      if (!Appears(store, absl::StrCat(round, rank), deadline)) missing.push_back(rank);
    }
    if (!missing.empty()) verdict = absl::StrCat(Ranks(missing), " failed to pass monitoredBarrier in ", ms, " ms");
    store.set(verdict_key, verdict);
    if (missing.empty() && number > 0) DeleteKeys(store_, absl::StrCat(barriers, number - 1, "/"), getSize());
  } else {
    // Rank 0 may come late, and then needs its own time to find that others are missing.
    const bool told = Appears(store, absl::StrCat(round, 0), deadline) &&
                      Appears(store, verdict_key, Later(deadline, std::chrono::milliseconds(ms)));
    verdict =
        told ? store.get_to_str(verdict_key) : absl::StrCat("Rank 0 failed to pass monitoredBarrier in ", ms, " ms");
  }
  TORCH_CHECK_WITH(DistBackendError, verdict.empty(), "tutti: ", verdict, *place_);
}

}  // namespace tutti::dist
