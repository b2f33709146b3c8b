// Strategies on the memory of GPUs, against the bytes that the host gives.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/codecs/inputs.h"
#include "tests/gpu/expected_on_gpu.h"
#include "tests/gpu/rank_check.h"
#include "tests/gpu/rank_memory.h"
#include "tests/kernels/element_values.h"
#include "tutti/algorithm.h"

namespace tutti::gpu {
namespace {

// Every algorithm with every codec that it takes, and with the options that change its messages.
std::set<std::string> StrategyNames() {
  std::set<std::string> names;
  for (const Algorithm* algorithm : AllAlgorithms()) {
    std::vector<std::string> options = {"",
                                        ":error_feedback=true",
                                        ":rounding=stochastic",
                                        ":average=false",
                                        ":codec=uint4_block,rotation=true",
                                        ":error_feedback=true,codec=sign",
                                        ":error_feedback=true,codec=topk"};
    for (const Codec* codec : AllCodecs()) options.push_back(absl::StrCat(":codec=", codec->name));
    for (const std::string& option : options) {
      const absl::StatusOr<Strategy> strategy = ParseStrategy(absl::StrCat(algorithm->name, option));
      if (strategy.ok()) names.insert(strategy->ToString());
    }
  }
  return names;
}

// A bucket of a strategy on the host or on a GPU, with the values of one rank.
struct Bucket {
  BoundPlan plan;
  std::vector<std::byte> host_in, host_out, host_state;
  std::unique_ptr<RankMemory> in, out, state;

  void Allocate(const CheckedRank& rank, const Plan& its_plan, bool on_gpu) {
    const std::int64_t sizes[] = {its_plan.in_bytes, its_plan.out_bytes, its_plan.state_bytes};
    std::vector<std::byte>* const on_host[] = {&host_in, &host_out, &host_state};
    std::unique_ptr<RankMemory>* const on_device[] = {&in, &out, &state};
    for (int i = 0; i < 3; ++i) {
      on_host[i]->assign(static_cast<std::size_t>(sizes[i]), std::byte{0});
      if (!on_gpu) continue;
      *on_device[i] = std::make_unique<RankMemory>(rank.device, sizes[i]);
      (*on_device[i])->Write(*on_host[i]);
    }
  }
  PlanBuffers Buffers() {
    if (in != nullptr) return {.in = in->data(), .out = out->data(), .state = state->data()};
    return {.in = host_in.data(), .out = host_out.data(), .state = host_state.data()};
  }
  // One run with these values, which lie in the output where the plan works in place.
  absl::Status Run(const std::vector<std::byte>& values, std::uint64_t draw) {
    std::vector<std::byte>& given = host_in.empty() ? host_out : host_in;
    std::copy(values.begin(), values.end(), given.begin());
    if (in != nullptr) (host_in.empty() ? out : in)->Write(given);
    if (absl::Status status = plan.Start({.draw = draw}).Wait(); !status.ok()) return status;
    if (in != nullptr) {
      host_out = out->Read();
      host_state = state->Read();
    }
    return absl::OkStatus();
  }
};

std::vector<std::byte> ValuesOf(DType dtype, std::int64_t count, Rank rank, int run) {
  const std::vector<float> values =
      MakeValues(Input::kBellShaped, count, static_cast<std::uint64_t>(100 * run + rank + 1));
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * SizeOf(dtype)));
  for (std::int64_t i = 0; i < count; ++i) {
    kernels::StoreElement(dtype, bytes.data(), i, static_cast<long double>(values[static_cast<std::size_t>(i)]));
  }
  return bytes;
}

// Whether NCCL sums floating elements in `plan`, in an order of its own.
bool SumsByNccl(const Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(),
                     [](const Step& step) { return step.kind == StepKind::kNative && Reduces(step.collective); });
}

absl::Status CompareRuns(const Bucket& got, const Bucket& expected, DType dtype, int size, bool exact) {
  if (exact) {
    if (got.host_state != expected.host_state) return absl::DataLossError("the state has other bytes than on the host");
    if (got.host_out != expected.host_out) return absl::DataLossError("the result has other bytes than on the host");
    return absl::OkStatus();
  }
  // The values are below 0.04; sums of them, below 0.04 · size.
  const double allowed = 0.04 * size * size * EpsilonOf(dtype);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(got.host_out.size()) / SizeOf(dtype); ++i) {
    const auto one = static_cast<double>(kernels::LoadElement(dtype, got.host_out.data(), i));
    const auto other = static_cast<double>(kernels::LoadElement(dtype, expected.host_out.data(), i));
    if (!(std::abs(one - other) <= allowed)) {
      return absl::DataLossError(absl::StrCat("element ", i, " is ", one, ", on the host ", other));
    }
  }
  return absl::OkStatus();
}

// One strategy: the same plans of messages on host and GPU give the same bytes; and so does the plan that the
// communicator makes for GPUs, unless NCCL adds, or messages of another plan are rounded by other random numbers.
// Unimplemented when the strategy serves no such bucket.
absl::Status CheckStrategy(CheckedRank& rank, const Strategy& strategy, DType dtype, std::int64_t count, int round) {
  PlanOptions messages = rank.comm.plan_options();
  messages.peers_mapped = false;
  messages.segment_bytes = std::int64_t{1} << 40;  // streams gain nothing from segments
  const auto plan_of = [&](Rank of) { return BuildPlan(strategy, dtype, count, of, rank.size(), messages, round); };
  const absl::StatusOr<Plan> sizes = plan_of(rank.rank());
  if (!sizes.ok()) return sizes.status();
  Bucket host, same, chosen;
  for (Bucket* const bucket : {&host, &same, &chosen}) {
    bucket->Allocate(rank, *sizes, bucket != &host);
    absl::StatusOr<BoundPlan> bound = bucket == &chosen
                                          ? rank.comm.Bind(strategy, dtype, count, round, bucket->Buffers())
                                          : rank.comm.Bind(plan_of, bucket->Buffers());
    if (!bound.ok()) return bound.status();
    bucket->plan = *std::move(bound);
  }
  if (chosen.plan.plan().state_bytes != sizes->state_bytes) {
    return absl::DataLossError("the state has another size on the GPU than on the host");
  }
  for (int run = 0; run < 3; ++run) {
    const std::vector<std::byte> values = ValuesOf(dtype, count, rank.rank(), run);
    for (Bucket* const bucket : {&host, &same, &chosen}) {
      if (absl::Status status = bucket->Run(values, static_cast<std::uint64_t>(run)); !status.ok()) return status;
    }
    absl::Status status = CompareRuns(same, host, dtype, rank.size(), /*exact=*/true);
    if (!status.ok()) return absl::DataLossError(absl::StrCat("run ", run, ", by messages: ", status.message()));
    if (CodecOf(strategy).options.rounding == Rounding::kStochastic) continue;
    status = CompareRuns(chosen, host, dtype, rank.size(), !SumsByNccl(chosen.plan.plan()));
    if (!status.ok()) return absl::DataLossError(absl::StrCat("run ", run, ", as chosen: ", status.message()));
  }
  return absl::OkStatus();
}

absl::Status EveryStrategy(CheckedRank& rank) {
  int compared = 0;
  std::set<std::string> algorithms;
  for (const std::string& name : StrategyNames()) {
    const Strategy strategy = *ParseStrategy(name);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int round : std::set<int>{0, RoundsOf(strategy, rank.size()) - 1}) {
        const absl::Status status = CheckStrategy(rank, strategy, dtype, rank.device.is_fake ? 5001 : 100003, round);
        if (absl::IsUnimplemented(status)) continue;
        if (!status.ok()) {
          return absl::Status(status.code(),
                              absl::StrCat(name, ", ", Name(dtype), ", round ", round, ": ", status.message()));
        }
        ++compared;
        algorithms.emplace(strategy.algorithm->name);
      }
    }
  }
  rank.note(absl::StrCat(compared, " buckets of ", algorithms.size(), " algorithms"));
  if (algorithms.size() == AllAlgorithms().size()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("only ", algorithms.size(), " algorithms serve buckets on a GPU"));
}

}  // namespace

std::vector<RankCheck> StrategyChecks() {
  return {{.name = "strategies",
           .summary = "every algorithm with every codec, against the bytes of the host",
           .sizes = {2, 3},
           .timeout = absl::Seconds(120),
           .also_staged = true,
           .run = EveryStrategy}};
}

}  // namespace tutti::gpu
