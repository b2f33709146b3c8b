#include "sync/residuals.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "sync/states_on_host.h"

namespace tutti {
namespace {

constexpr char kEndOfKey = '\n';  // ends a parameter's key in the name of a saved state

bool IsResidual(const StateRange& state) {
  return state.kind == StateKind::kResidual && state.range.dtype == DType::kF32;
}

// Moves the residuals of `state` out of `residuals`, and adds them to `values`, one value per element of the bucket.
void MoveTo(absl::Span<float> values, const StateRange& state, const BucketContents& contents, Residuals& residuals) {
  std::int64_t begin = 0;  // the parameter's first element in the bucket
  for (const BucketParameter& parameter : contents.parameters) {
    const auto found = residuals.find(parameter.key);
    if (found != residuals.end()) {
      std::vector<Residual>& all = found->second.residuals;
      for (const Residual& residual : all) {
        if (residual.name != state.name) continue;
        const double share = static_cast<double>(state.divisor) / static_cast<double>(residual.divisor);
        for (std::size_t i = 0; i < residual.values.size(); ++i) {
          const std::int64_t at = begin + residual.first_element + static_cast<std::int64_t>(i);
          values[static_cast<std::size_t>(at)] += static_cast<float>(residual.values[i] * share);
        }
      }
      all.erase(std::remove_if(all.begin(), all.end(), [&](const Residual& r) { return r.name == state.name; }),
                all.end());
    }
    begin += parameter.count;
  }
}

bool HasAny(const Residuals& residuals, const BucketContents& contents) {
  return std::any_of(contents.parameters.begin(), contents.parameters.end(), [&](const BucketParameter& parameter) {
    const auto found = residuals.find(parameter.key);
    return found != residuals.end() && !found->second.residuals.empty();
  });
}

// The residual `state` of a world of `saved_size` ranks, as a world of `size` ranks would have it: what was held back
// of an average over all ranks is held back of an average over `size` ranks. `name` is the residual's.
Residual InWorldOf(int size, int saved_size, const CheckpointState& state, std::string name) {
  Residual residual = {std::move(name), state.first_element, state.divisor,
                       std::vector<float>(state.bytes.size() / sizeof(float))};
  if (!residual.values.empty()) std::memcpy(residual.values.data(), state.bytes.data(), state.bytes.size());
  if (state.divisor != saved_size || state.divisor == 1) return residual;
  const double share = static_cast<double>(size) / static_cast<double>(saved_size);
  for (float& value : residual.values) value = static_cast<float>(value * share);
  residual.divisor = size;
  return residual;
}

absl::Span<float> ValuesOf(const StatesOnHost& states, const StateRange& state) {
  return {reinterpret_cast<float*>(states.AddressOf(state)), static_cast<std::size_t>(state.range.count())};
}

}  // namespace

absl::Status CopyOut(const ExchangeBucket& bucket, const BucketContents& contents, Residuals& residuals) {
  const absl::StatusOr<StatesOnHost> states = StatesOnHost::Of(bucket);
  if (!states.ok()) return states.status();
  for (const StateRange& state : bucket.states()) {
    if (!IsResidual(state)) continue;
    const absl::Span<const float> values = ValuesOf(*states, state);
    std::int64_t begin = 0;  // the parameter's first element in the bucket
    for (const BucketParameter& parameter : contents.parameters) {
      const std::int64_t first = std::max(begin, state.first_element);
      const std::int64_t end = std::min(begin + parameter.count, state.first_element + state.range.count());
      if (first < end) {
        const float* const from = values.data() + (first - state.first_element);
        ParameterResiduals& of = residuals[parameter.key];
        of.count = parameter.count;
        of.residuals.push_back({state.name, first - begin, state.divisor, {from, from + (end - first)}});
      }
      begin += parameter.count;
    }
  }
  return absl::OkStatus();
}

absl::Status MoveIn(Residuals& residuals, const BucketContents& contents, Communicator& communicator,
                    const CallOptions& call, ExchangeBucket& bucket) {
  CallOptions driven = call;
  driven.caller_drives = true;
  // Bit i: some rank has only a part of the bucket's state i. Ranks that do not exchange have no states, but take part
  // in the agreement.
  constexpr std::int64_t kAny = std::int64_t{1} << kMaxStates;
  std::int64_t bits = HasAny(residuals, contents) ? kAny : 0;
  absl::StatusOr<StatesOnHost> states = StatesOnHost::Of(bucket);
  if (!states.ok()) return states.status();
  for (std::size_t i = 0; i < bucket.states().size(); ++i) {
    const StateRange& state = bucket.states()[i];
    if (!IsResidual(state)) continue;
    const absl::Span<float> values = ValuesOf(*states, state);
    std::fill(values.begin(), values.end(), 0.0f);
    if (state.range.count() != bucket.count()) bits |= std::int64_t{1} << i;
  }
  Work agreement = communicator.AllReduce(&bits, &bits, 1, DType::kI64, ReduceOp::kBitwiseOr, driven);
  if (absl::Status status = agreement.Wait(); !status.ok()) return status;
  if ((bits & kAny) == 0) return states->Store();
  for (int i = 0; i < kMaxStates; ++i) {
    const StateRange* const state =
        i < static_cast<int>(bucket.states().size()) && IsResidual(bucket.states()[i]) ? &bucket.states()[i] : nullptr;
    if ((bits >> i & 1) == 0) {
      if (state != nullptr) MoveTo(ValuesOf(*states, *state), *state, contents, residuals);
      continue;
    }
    // One rank alone has a residual of each element, so the sum over the ranks is exact.
    std::vector<float> all(static_cast<std::size_t>(bucket.count()));
    if (state != nullptr) MoveTo(absl::MakeSpan(all), *state, contents, residuals);
    Work sum = communicator.AllReduce(all.data(), all.data(), bucket.count(), DType::kF32, ReduceOp::kSum, driven);
    if (absl::Status status = sum.Wait(); !status.ok()) return status;
    if (state == nullptr) continue;
    std::copy_n(all.begin() + state->first_element, state->range.count(), ValuesOf(*states, *state).begin());
  }
  return states->Store();
}

void Multiply(Residuals& residuals, double factor) {
  for (auto& [key, parameter] : residuals) {
    for (Residual& residual : parameter.residuals) {
      for (float& value : residual.values) value = static_cast<float>(value * factor);
    }
  }
}

std::vector<CheckpointBucket> ToSave(const Residuals& residuals) {
  std::vector<CheckpointBucket> saved;
  for (const auto& [key, parameter] : residuals) {
    CheckpointBucket& states = saved.emplace_back(CheckpointBucket{parameter.count, {}});
    for (const Residual& residual : parameter.residuals) {
      states.states.push_back({absl::StrCat(key, std::string(1, kEndOfKey), residual.name), StateKind::kResidual,
                               DType::kF32, residual.first_element, residual.divisor,
                               absl::string_view(reinterpret_cast<const char*>(residual.values.data()),
                                                 residual.values.size() * sizeof(float))});
    }
  }
  return saved;
}

absl::StatusOr<Residuals> TakeOver(const std::vector<Checkpoint>& checkpoints, const CheckpointOwner& owner,
                                   const std::map<std::string, std::int64_t>& known) {
  Residuals residuals;
  std::map<std::string, std::int64_t> counts;
  for (const Checkpoint& checkpoint : checkpoints) {
    const auto misfit = [&](const auto&... what) {
      return absl::InvalidArgumentError(absl::StrCat("state of rank ", checkpoint.owner.rank, ": ", what...));
    };
    const std::vector<Rank>& former = checkpoint.owner.participants;
    const bool exchanged = std::find(former.begin(), former.end(), checkpoint.owner.rank) != former.end();
    const bool mine = exchanged && HeirOf(checkpoint.owner.rank, checkpoint.owner, owner) == owner.rank;
    for (const CheckpointBucket& bucket : checkpoint.buckets) {
      for (const CheckpointState& state : bucket.states) {
        const std::size_t end = state.name.rfind(kEndOfKey);
        if (end == std::string::npos || state.kind != StateKind::kResidual || state.dtype != DType::kF32) {
          return misfit("'", state.name, "' is no residual of a parameter");
        }
        const std::string key = state.name.substr(0, end);
        if (const auto now = known.find(key); now != known.end() && now->second != bucket.count) {
          return misfit("parameter ", key, " has ", bucket.count, " elements, expected ", now->second);
        }
        const std::int64_t values = static_cast<std::int64_t>(state.bytes.size() / sizeof(float));
        if (state.first_element < 0 || values > bucket.count || state.first_element > bucket.count - values) {
          return misfit("'", state.name, "' has more elements than parameter ", key);
        }
        const std::int64_t count = counts.try_emplace(key, bucket.count).first->second;
        if (count != bucket.count) {
          return misfit("parameter ", key, " has ", bucket.count, " elements, of other ranks ", count);
        }
        if (!mine) continue;
        ParameterResiduals& of = residuals[key];
        of.count = bucket.count;
        of.residuals.push_back(InWorldOf(owner.size, checkpoint.owner.size, state, state.name.substr(end + 1)));
      }
    }
  }
  return residuals;
}

}  // namespace tutti
