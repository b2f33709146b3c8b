#include "tutti/collective.h"

#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/limits.h"
#include "plan/name_of.h"

namespace tutti {
namespace {

std::int64_t Total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

absl::Status Invalid(const CollectiveSpec& spec, Rank rank, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(Name(spec.collective), " of rank ", rank, ": ", what));
}

absl::Status TooLarge(const CollectiveSpec& spec, Rank rank, const std::string& what, std::int64_t limit) {
  return Invalid(spec, rank,
                 absl::StrCat(what, " is not in 0…", limit, ": a buffer holds at most ", kMaxBytes, " bytes of ",
                              Name(spec.dtype)));
}

template <typename Enum, std::size_t N>
absl::Status ValidateEnum(const CollectiveSpec& spec, Rank rank, absl::string_view field, Enum value,
                          const std::array<Enum, N>& all) {
  const auto number = static_cast<std::size_t>(value);
  if (number < all.size()) return absl::OkStatus();
  return Invalid(spec, rank, absl::StrCat(field, " ", number, " must be in 0…", all.size() - 1));
}

// The name that users know for CollectiveSpec::root: an argument of the call.
absl::string_view NameOfRoot(Collective collective) {
  if (collective == Collective::kSend) return "to";
  return collective == Collective::kRecv ? "from" : "root";
}

// How many blocks of `count` elements the longest buffer of any rank has.
int BlocksOf(Collective collective, int size) {
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
      return size;
    default:
      return 1;
  }
}

absl::Status ValidateCounts(const CollectiveSpec& spec, absl::string_view field,
                            const std::vector<std::int64_t>& counts, Rank rank, int size) {
  if (spec.collective != Collective::kAllToAllV) {
    if (counts.empty()) return absl::OkStatus();
    return Invalid(spec, rank, absl::StrCat(field, " must be empty: only all_to_all_v has counts per peer"));
  }
  if (counts.size() != static_cast<std::size_t>(size)) {
    return Invalid(spec, rank, absl::StrCat(field, " has ", counts.size(), " entries; it needs one per rank, ", size));
  }
  std::int64_t left = kMaxBytes / SizeOf(spec.dtype);  // for all peers together
  for (int peer = 0; peer < size; ++peer) {
    if (counts[peer] < 0 || counts[peer] > left) {
      return TooLarge(spec, rank, absl::StrCat(field, "[", peer, "] = ", counts[peer]), left);
    }
    left -= counts[peer];
  }
  return absl::OkStatus();
}

}  // namespace

bool Reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}

bool IsPointToPoint(Collective collective) {
  return collective == Collective::kSend || collective == Collective::kRecv;
}

bool HasRoot(Collective collective) {
  switch (collective) {
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kSend:
    case Collective::kRecv:
      return true;
    default:
      return false;
  }
}

bool HasInPlaceForm(Collective collective) {
  switch (collective) {
    case Collective::kAllToAll:
    case Collective::kAllToAllV:
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kRecv:
      return false;
    default:
      return true;
  }
}

absl::string_view Name(Collective collective) {
  static constexpr std::array<absl::string_view, kAllCollectives.size()> kNames = {
      "all_reduce", "reduce_scatter", "all_gather",   "broadcast", "reduce", "gather",
      "scatter",    "all_to_all",     "all_to_all_v", "barrier",   "send",   "recv"};
  return NameOf(kNames, collective);
}

absl::StatusOr<Collective> ParseCollective(absl::string_view name) {
  return ParseName(kAllCollectives, "collective", name);
}

std::int64_t InputCount(const CollectiveSpec& spec, Rank rank, int size) {
  switch (spec.collective) {
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kSend:
      return spec.count;
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return spec.count * size;
    case Collective::kBroadcast:
      return rank == spec.root ? spec.count : 0;
    case Collective::kScatter:
      return rank == spec.root ? spec.count * size : 0;
    case Collective::kAllToAllV:
      return Total(spec.send_counts);
    case Collective::kBarrier:
    case Collective::kRecv:
      return 0;
  }
  return 0;
}

std::int64_t OutputCount(const CollectiveSpec& spec, Rank rank, int size) {
  switch (spec.collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kBroadcast:
    case Collective::kScatter:
    case Collective::kRecv:
      return spec.count;
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return spec.count * size;
    case Collective::kReduce:
      return rank == spec.root ? spec.count : 0;
    case Collective::kGather:
      return rank == spec.root ? spec.count * size : 0;
    case Collective::kAllToAllV:
      return Total(spec.recv_counts);
    case Collective::kBarrier:
    case Collective::kSend:
      return 0;
  }
  return 0;
}

absl::Status Validate(const CollectiveSpec& spec, Rank rank, int size) {
  if (size < 1) return Invalid(spec, rank, absl::StrCat("size ", size, " must be at least 1"));
  if (rank < 0 || rank >= size) return Invalid(spec, rank, absl::StrCat("rank must be in 0…", size - 1));
  absl::Status enums = ValidateEnum(spec, rank, "collective", spec.collective, kAllCollectives);
  enums.Update(ValidateEnum(spec, rank, "dtype", spec.dtype, kAllDTypes));
  enums.Update(ValidateEnum(spec, rank, "op", spec.op, kAllReduceOps));
  if (!enums.ok()) return enums;
  if (Reduces(spec.collective)) {
    if (absl::Status defined = CheckOp(spec.dtype, spec.op); !defined.ok()) {
      return Invalid(spec, rank, std::string(defined.message()));
    }
  }
  const std::int64_t limit = kMaxBytes / SizeOf(spec.dtype) / BlocksOf(spec.collective, size);
  if (spec.count < 0 || spec.count > limit) {
    return TooLarge(spec, rank, absl::StrCat("count ", spec.count), limit);
  }
  const bool counted = spec.collective != Collective::kBarrier && spec.collective != Collective::kAllToAllV;
  if (!counted && spec.count != 0) {
    return Invalid(spec, rank, absl::StrCat("count ", spec.count, " must be 0: this collective does not use count"));
  }
  const bool from_any = spec.collective == Collective::kRecv && spec.root == kAnySource;
  if (HasRoot(spec.collective) && !from_any && (spec.root < 0 || spec.root >= size)) {
    return Invalid(spec, rank,
                   absl::StrCat(NameOfRoot(spec.collective), " ", spec.root, " must be in 0…", size - 1,
                                spec.collective == Collective::kRecv ? ", or kAnySource (-2)" : ""));
  }
  if (absl::Status s = ValidateCounts(spec, "send_counts", spec.send_counts, rank, size); !s.ok()) return s;
  if (absl::Status s = ValidateCounts(spec, "recv_counts", spec.recv_counts, rank, size); !s.ok()) return s;
  if (spec.collective == Collective::kAllToAllV && spec.send_counts[rank] != spec.recv_counts[rank]) {
    return Invalid(spec, rank,
                   absl::StrCat("send_counts[", rank, "] = ", spec.send_counts[rank], " must equal recv_counts[", rank,
                                "] = ", spec.recv_counts[rank], ": both are the length of the block of rank ", rank,
                                " to itself"));
  }
  if (spec.in_place && !HasInPlaceForm(spec.collective)) {
    return Invalid(spec, rank, "in_place must be false: this collective has no in-place form");
  }
  return absl::OkStatus();
}

std::string ToString(const CollectiveSpec& spec) {
  std::string text = absl::StrCat(Name(spec.collective));
  if (spec.collective == Collective::kBarrier) return text;
  absl::StrAppend(&text, " ", Name(spec.dtype));
  if (Reduces(spec.collective)) absl::StrAppend(&text, " ", Name(spec.op));
  if (spec.collective == Collective::kAllToAllV) {
    absl::StrAppend(&text, " send_counts=", absl::StrJoin(spec.send_counts, ","),
                    " recv_counts=", absl::StrJoin(spec.recv_counts, ","));
  } else {
    absl::StrAppend(&text, " count=", spec.count);
  }
  if (spec.collective == Collective::kSend) {
    absl::StrAppend(&text, " to=", spec.root);
  } else if (spec.collective == Collective::kRecv) {
    absl::StrAppend(&text, " from=", spec.root == kAnySource ? "any" : absl::StrCat(spec.root));
  } else if (HasRoot(spec.collective)) {
    absl::StrAppend(&text, " root=", spec.root);
  }
  if (spec.in_place) absl::StrAppend(&text, " in_place");
  return text;
}

}  // namespace tutti
