#include "bindings/cli/traffic.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bindings/cli/suggestion.h"

namespace tutti::cli {
namespace {

constexpr absl::string_view kSendRecv = "send_recv";

template <typename Names>
std::string JoinedNames(const Names& all) {
  return absl::StrJoin(all, " ", [](std::string* out, auto value) { absl::StrAppend(out, Name(value)); });
}

// Whether `count` of the call is the length of one block, of which Traffic::bytes counts one for each rank.
bool IsPerRank(Collective collective) {
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
    case Collective::kAllToAllV:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string NamesOfDTypes() { return JoinedNames(kAllDTypes); }

std::string NamesOfOps() { return JoinedNames(kAllReduceOps); }

std::vector<std::string> BenchNames() {
  std::vector<std::string> names;
  for (Collective collective : kAllCollectives) {
    if (collective == Collective::kSend || collective == Collective::kRecv) continue;
    names.emplace_back(Name(collective));
  }
  names.emplace_back(kSendRecv);
  return names;
}

absl::StatusOr<std::string> ParseBenchName(absl::string_view name) {
  std::vector<std::string> names = BenchNames();
  names.emplace_back("all");
  if (std::find(names.begin(), names.end(), name) != names.end()) return std::string(name);
  return absl::InvalidArgumentError(absl::StrCat("no collective '", name, "'", Suggestion(name, names)));
}

std::int64_t Traffic::bytes() const { return count * (IsPerRank(spec.collective) ? size : 1) * SizeOf(spec.dtype); }

std::int64_t Traffic::input_count() const { return InputCount(spec, rank, size); }

std::int64_t Traffic::output_count() const {
  return spec.collective == Collective::kSend ? count : OutputCount(spec, rank, size);
}

std::int64_t Traffic::in_place_count() const { return std::max(input_count(), output_count()); }

std::int64_t Traffic::in_place_input() const {
  const bool is_block = output_count() > input_count() && IsPerRank(spec.collective);
  return is_block ? rank * count : 0;
}

std::int64_t Traffic::in_place_output() const {
  const bool is_block = input_count() > output_count() && output_count() > 0 && IsPerRank(spec.collective);
  return is_block ? rank * count : 0;
}

std::vector<Piece> Traffic::expected() const {
  std::vector<Piece> pieces;
  if (output_count() == 0) return pieces;
  switch (spec.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      pieces.push_back({Piece::kReduced, 0, 0, count});
      break;
    case Collective::kReduceScatter:
      pieces.push_back({Piece::kReduced, rank * count, 0, count});
      break;
    case Collective::kBroadcast:
      pieces.push_back({spec.root, 0, 0, count});
      break;
    case Collective::kScatter:
      pieces.push_back({spec.root, rank * count, 0, count});
      break;
    case Collective::kAllGather:
    case Collective::kGather:
      for (Rank from = 0; from < size; ++from) pieces.push_back({from, 0, from * count, count});
      break;
    case Collective::kAllToAll:
    case Collective::kAllToAllV:
      for (Rank from = 0; from < size; ++from) pieces.push_back({from, rank * count, from * count, count});
      break;
    case Collective::kSend:
      pieces.push_back({previous(), 0, 0, count});
      break;
    case Collective::kRecv:
    case Collective::kBarrier:
      break;
  }
  return pieces;
}

double Traffic::bus_factor() const {
  const double n = size;
  if (spec.collective == Collective::kAllReduce) return 2 * (n - 1) / n;
  return IsPerRank(spec.collective) ? (n - 1) / n : 1;
}

absl::Status CheckFlags(Collective collective, absl::Span<const std::string> given) {
  for (const std::string& flag : given) {
    absl::string_view lacks;
    // The root in the spec of a message is its other end, which is given.
    if (flag == "--root" && (!HasRoot(collective) || IsPointToPoint(collective))) lacks = "has no root";
    if (flag == "--op" && !Reduces(collective)) lacks = "reduces nothing";
    if (flag == "--in-place" && !HasInPlaceForm(collective)) lacks = "has no in-place form";
    if (lacks.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(flag, ": ", Name(collective), " ", lacks, "; leave ", flag, " out"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Traffic> MakeTraffic(Collective collective, const TrafficOptions& options, std::int64_t bytes,
                                    std::int64_t count, Rank rank, int size) {
  Traffic traffic{.name = std::string(Name(collective)), .spec = {}, .count = count, .rank = rank, .size = size};
  CollectiveSpec& spec = traffic.spec;
  spec.collective = collective;
  spec.dtype = options.dtype;
  if (Reduces(collective)) spec.op = options.op;
  if (HasRoot(collective)) spec.root = options.root;
  spec.in_place = options.in_place && HasInPlaceForm(collective);
  if (collective == Collective::kBarrier) {
    traffic.count = 0;
  } else if (count < 0) {
    const std::int64_t blocks = IsPerRank(collective) ? size : 1;
    traffic.count = bytes == 0 ? 0 : std::max<std::int64_t>(1, bytes / SizeOf(spec.dtype) / blocks);
  }
  if (collective == Collective::kAllToAllV) {
    spec.send_counts.assign(static_cast<std::size_t>(size), traffic.count);
    spec.recv_counts = spec.send_counts;
  } else {
    spec.count = traffic.count;
  }
  if (const absl::Status status = Validate(spec, rank, size); !status.ok()) return status;
  return traffic;
}

absl::StatusOr<Traffic> MakeBenchTraffic(const std::string& name, const TrafficOptions& options, std::int64_t bytes,
                                         Rank rank, int size) {
  if (name == kSendRecv) {
    TrafficOptions to_next = options;
    to_next.root = (rank + 1) % size;
    absl::StatusOr<Traffic> traffic = MakeTraffic(Collective::kSend, to_next, bytes, -1, rank, size);
    if (traffic.ok()) traffic->name = name;
    return traffic;
  }
  const absl::StatusOr<Collective> collective = ParseCollective(name);
  if (!collective.ok()) return collective.status();
  return MakeTraffic(*collective, options, bytes, -1, rank, size);
}

}  // namespace tutti::cli
