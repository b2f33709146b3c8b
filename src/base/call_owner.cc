#include "base/call_owner.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tutti {
namespace {

constexpr std::array<absl::string_view, 3> kKinds = {"synchronizer", "bucket exchange", "bucket"};
constexpr std::array<absl::string_view, 6> kPurposes = {
    "the exchange", "AgreeOnOverflow", "SetLossScale", "Flush", "BroadcastState, CheckState, LoadState or Agree",
    "OwnCall"};

// From the highest bit on: one bit that is set, two of the kind, three of the purpose, and the number.
constexpr std::uint32_t kPacked = 1U << 31;
constexpr int kKindShift = 29;
constexpr int kPurposeShift = 26;

using Kind = CallOwner::Kind;

// The mistake where two calls of one synchronizer meet.
absl::string_view ExplainCalls(const CallOwner& a, std::uint64_t round_of_a, const CallOwner& b,
                               std::uint64_t round_of_b) {
  if (a.purpose != b.purpose) return "; the ranks have made unequal numbers of steps, or other calls between the steps";
  if (round_of_a / kRepeatedRound != round_of_b / kRepeatedRound) {
    return "; after an exception in a backward() all ranks must repeat that backward()";
  }
  return round_of_a == round_of_b ? "" : "; one rank has left out a backward() or a LoadState()";
}

// The mistake where two calls meet that bucket exchanges, or their buckets, have made.
absl::string_view ExplainBuckets(const CallOwner& a, std::uint64_t round_of_a, const CallOwner& b,
                                 std::uint64_t round_of_b) {
  if (a.kind == Kind::kBucket && b.kind == Kind::kBucket && a.number != b.number) {
    return "; the ranks exchange their buckets in different orders";
  }
  if (a.kind != b.kind || a.number != b.number || a.purpose != b.purpose) {
    return "; the ranks make the calls of their bucket exchanges in different orders";
  }
  return round_of_a == round_of_b ? "" : "; one rank has left out an Exchange() of the bucket";
}

}  // namespace

std::uint32_t CallOwner::Pack() const {
  return kPacked | static_cast<std::uint32_t>(kind) << kKindShift |
         static_cast<std::uint32_t>(purpose) << kPurposeShift | number;
}

std::optional<CallOwner> CallOwner::Unpack(std::uint32_t owner) {
  const std::uint32_t kind = owner >> kKindShift & 3;
  const std::uint32_t purpose = owner >> kPurposeShift & 7;
  if (owner < kPacked || kind >= kKinds.size() || purpose >= kPurposes.size()) return std::nullopt;
  return CallOwner{static_cast<Kind>(kind), static_cast<Purpose>(purpose), owner & kMaxNumber};
}

std::string DescribeOwner(std::uint32_t owner, std::uint64_t round) {
  if (owner == 0 && round == 0) return "";
  const std::optional<CallOwner> packed = CallOwner::Unpack(owner);
  if (!packed.has_value()) return absl::StrCat(" of owner ", owner, " in round ", round);
  std::string text = absl::StrCat(" for ", kPurposes[static_cast<std::size_t>(packed->purpose)], " of ",
                                  kKinds[static_cast<std::size_t>(packed->kind)], " ", packed->number);
  if (round != 0) absl::StrAppend(&text, ", round ", round % kRepeatedRound);
  if (round >= kRepeatedRound) text += ", after an exception has ended a backward()";
  return text;
}

std::string ExplainOwners(std::uint32_t one, std::uint64_t round_of_one, std::uint32_t other,
                          std::uint64_t round_of_other) {
  const std::optional<CallOwner> a = CallOwner::Unpack(one);
  const std::optional<CallOwner> b = CallOwner::Unpack(other);
  if (!a.has_value() || !b.has_value()) return "";
  if (a->kind == Kind::kSynchronizer || b->kind == Kind::kSynchronizer) {
    if (a->kind != b->kind || a->number != b->number) {
      return "; the ranks train their models in different orders: give each model a communicator of its own";
    }
    return std::string(ExplainCalls(*a, round_of_one, *b, round_of_other));
  }
  return std::string(ExplainBuckets(*a, round_of_one, *b, round_of_other));
}

}  // namespace tutti
