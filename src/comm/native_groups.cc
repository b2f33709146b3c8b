// The native transports of parts of a communicator, for plans whose native steps are among some ranks only: those of a
// node, or the leaders of all nodes.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "comm/bootstrap_exchange.h"
#include "comm/communicator_impl.h"
#include "comm/loss_aware_store.h"
#include "plan/meetings.h"
#include "store/mac.h"

namespace tutti {
namespace {

// Meets the other ranks of `ranks`, in which this rank has `place`, over `store`, in which these are all.
absl::StatusOr<std::unique_ptr<NativeTransport>> Meet(const Runtime& runtime, Store& store,
                                                      const std::vector<Rank>& ranks, Rank place) {
  std::string id;
  if (place == 0) {
    absl::StatusOr<std::string> made = runtime.native->NewId();
    if (!made.ok()) return made.status();
    id = *std::move(made);
  }
  const std::int64_t end_ns = NanosIn(runtime.timeout);
  const std::string what = absl::StrCat("the native transport of ranks ", absl::StrJoin(ranks, ", "));
  const absl::StatusOr<std::vector<std::string>> ids =
      ExchangeInGroup(store, what, place, {.ranks = ranks, .limit = runtime.timeout}, id);
  if (!ids.ok()) return ids.status();
  return runtime.native->Connect((*ids)[0], place, static_cast<int>(ranks.size()), runtime.device->index,
                                 TimeAt(end_ns));
}

}  // namespace

absl::Status Communicator::Impl::MakeNativeGroups(absl::Span<const Plan> plans) {
  const std::vector<std::vector<Rank>> groups = GroupsOf(plans);
  if (groups.empty()) return absl::OkStatus();
  const MutexLock lock(native_groups_mutex_);
  for (const std::vector<Rank>& ranks : groups) {
    const auto mine = std::find(ranks.begin(), ranks.end(), channel->rank());
    if (mine == ranks.end() || native_groups_.contains(ranks)) continue;
    const auto gone = [this] { return runtime->engine->GoneFrom(*channel); };
    const std::string key = absl::BytesToHexString(View(Sha256(absl::StrJoin(ranks, ","))));
    const std::shared_ptr<Store> meeting =
        MakePrefixStore(MakeLossAwareStore(store, gone), absl::StrCat("native/", key, "/"), ranks);
    absl::StatusOr<std::unique_ptr<NativeTransport>> made =
        Meet(*runtime, *meeting, ranks, static_cast<Rank>(mine - ranks.begin()));
    if (!made.ok()) {
      // Ranks that have the group would wait for this one.
      runtime->engine->Abort(*channel, made.status());
      return made.status();
    }
    runtime->engine->AddOnDevice(*channel, ranks, *std::move(made));
    native_groups_.insert(ranks);
  }
  return absl::OkStatus();
}

}  // namespace tutti
