// Every collective, type, operator and schedule on the memory of GPUs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/gpu/expected_on_gpu.h"
#include "tests/gpu/rank_check.h"
#include "tests/gpu/rank_memory.h"
#include "tests/kernels/element_values.h"

namespace tutti::gpu {
namespace {

// What works in the memory of a GPU today; docs/gpus.md names the others.
std::vector<Collective> CollectivesOnGpu() {
  std::vector<Collective> found;
  for (const Collective collective : kAllCollectives) {
    if (HasNativeForm(collective)) found.push_back(collective);
  }
  return found;
}

// The forms of a call: every root that differs in kind, in place and not.
std::vector<CollectiveSpec> FormsOf(Collective collective, int size) {
  std::vector<CollectiveSpec> forms;
  for (const Rank root : std::set<Rank>{0, size - 1}) {
    if (root > 0 && !HasRoot(collective)) break;
    for (const bool in_place : {false, true}) {
      if (in_place && !HasInPlaceForm(collective)) continue;
      forms.push_back({.collective = collective, .root = root, .in_place = in_place});
    }
  }
  return forms;
}

// Calls as users make them: the selector chooses, which takes NCCL where it can.
absl::Status EveryCollective(CheckedRank& rank) {
  std::vector<std::int64_t> counts = {0, 1, 7, 1000, 65537};
  if (!rank.device.is_fake) counts.push_back((1 << 22) + 3);
  int calls = 0;
  for (const Collective collective : CollectivesOnGpu()) {
    for (const CollectiveSpec& form : FormsOf(collective, rank.size())) {
      for (const std::int64_t count : counts) {
        if (absl::Status status = CheckCall(rank, nullptr, form, count); !status.ok()) return status;
        ++calls;
      }
    }
  }
  rank.note(absl::StrCat(calls, " calls"));
  return absl::OkStatus();
}

// NaN of one rank stays in a maximum, which NCCL would drop.
absl::Status NanStays(CheckedRank& rank) {
  std::vector<std::byte> bytes(12);
  float values[3] = {1, 2, 3};
  if (rank.rank() == 0) values[1] = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data(), values, 12);
  const RankMemory memory(rank.device, 12);
  memory.Write(bytes);
  const absl::Status status = rank.comm.AllReduce(memory.data(), memory.data(), 3, DType::kF32, ReduceOp::kMax).Wait();
  if (!status.ok()) return status;
  std::memcpy(values, memory.Read().data(), 12);
  if (values[0] == 1 && std::isnan(values[1]) && values[2] == 3) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("maximum of 1, NaN, 3: ", values[0], ", ", values[1], ", ", values[2]));
}

// Every type with every operator that Tutti has for it, by NCCL and by messages with Tutti's kernels.
absl::Status EveryType(CheckedRank& rank) {
  int calls = 0;
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (!HasOp(dtype, op)) continue;
      for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter}) {
        const CollectiveSpec spec = {.collective = collective, .dtype = dtype, .op = op};
        if (absl::Status status = CheckCall(rank, nullptr, spec, 1003); !status.ok()) return status;
        ++calls;
      }
    }
    for (const Collective collective : {Collective::kAllGather, Collective::kAllToAll, Collective::kBroadcast}) {
      if (absl::Status status = CheckCall(rank, nullptr, {.collective = collective, .dtype = dtype}, 1003);
          !status.ok()) {
        return status;
      }
      ++calls;
    }
  }
  rank.note(absl::StrCat(calls, " calls"));
  return NanStays(rank);
}

// Every schedule by its name. A schedule that does not serve a GPU says so on all ranks.
absl::Status EverySchedule(CheckedRank& rank) {
  std::map<Collective, std::vector<std::string>> served;
  for (const Schedule* schedule : AllSchedules()) {
    const Collective collective = schedule->collective;
    if (!HasNativeForm(collective)) continue;
    bool serves = true;
    for (CollectiveSpec spec : FormsOf(collective, rank.size())) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        spec.dtype = dtype;
        for (const std::int64_t count : {1, 1000, rank.device.is_fake ? 3001 : 50021}) {
          const absl::Status status = serves ? CheckCall(rank, schedule, spec, count) : absl::OkStatus();
          serves = serves && !absl::IsUnimplemented(status);
          if (serves && !status.ok()) return status;
        }
      }
    }
    if (serves) served[collective].emplace_back(schedule->name);
  }
  std::vector<std::string> texts;
  for (const auto& [collective, names] : served) {
    texts.push_back(absl::StrCat(Name(collective), "=", absl::StrJoin(names, "|")));
  }
  rank.note(absl::StrJoin(texts, ", "));
  for (const Collective collective : CollectivesOnGpu()) {
    const std::vector<std::string>& names = served[collective];
    if (names.size() >= 2 && std::find(names.begin(), names.end(), "native") != names.end()) continue;
    return absl::DataLossError(absl::StrCat(Name(collective), " is served by ", absl::StrJoin(names, "|"),
                                            " and not by NCCL and by messages"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<RankCheck> CollectiveChecks() {
  return {{.name = "collectives",
           .summary = "every collective that the selector serves, odd sizes, all roots, in place",
           .sizes = {1, 2, 3},
           .timeout = absl::Seconds(90),
           .also_staged = true,
           .run = EveryCollective},
          {.name = "types",
           .summary = "every type with every operator; NaN stays",
           .sizes = {2, 3},
           .timeout = absl::Seconds(90),
           .run = EveryType},
          {.name = "schedules",
           .summary = "every schedule by its name",
           .sizes = {2, 3},
           .timeout = absl::Seconds(90),
           .run = EverySchedule}};
}

}  // namespace tutti::gpu
