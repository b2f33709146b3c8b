#include "tests/gpu/expected_on_gpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/gpu/rank_memory.h"
#include "tests/harness/expected_results.h"

namespace tutti::gpu {
namespace {

// How far NCCL's result of element `i` may be from the exact one.
long double Allowed(const CollectiveSpec& spec, std::int64_t count, Rank rank, int size, std::int64_t i) {
  const std::int64_t at = spec.collective == Collective::kReduceScatter ? rank * count + i : i;
  long double magnitude = std::abs(OutputElement(spec, count, rank, size, i).real());
  if (spec.op != ReduceOp::kProd) {
    for (Rank peer = 0; peer < size; ++peer) {
      magnitude += std::abs(InputElement(spec, peer, at).real() * static_cast<long double>(FactorOf(spec, peer)));
    }
  }
  return size * EpsilonOf(spec.dtype) * magnitude;
}

std::string TextOf(const kernels::Number& number) {
  return absl::StrCat(static_cast<double>(number.real()),
                      number.imag() == 0 ? "" : absl::StrCat(" + ", static_cast<double>(number.imag()), " i"));
}

std::uint64_t HashOf(const std::vector<std::byte>& bytes) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211u;
  return hash;
}

}  // namespace

CallMemory MemoryOf(const CollectiveSpec& spec, Rank rank, int size) {
  const std::int64_t in_bytes = InputCount(spec, rank, size) * SizeOf(spec.dtype);
  const std::int64_t out_bytes = OutputCount(spec, rank, size) * SizeOf(spec.dtype);
  CallMemory memory = {.bytes = std::max(in_bytes, out_bytes)};
  if (spec.in_place && in_bytes > 0 && out_bytes > 0 && in_bytes != out_bytes) {
    (in_bytes < out_bytes ? memory.in_at : memory.out_at) = rank * std::min(in_bytes, out_bytes);
  }
  memory.input.resize(static_cast<std::size_t>(memory.bytes));
  FillInput(spec, rank, memory.input.data() + memory.in_at, 0, InputCount(spec, rank, size));
  return memory;
}

double EpsilonOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-52;
    case DType::kF16:
      return 0x1p-10;
    case DType::kBF16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

absl::Status CompareOutput(const CollectiveSpec& spec, std::int64_t count, Rank rank, int size, bool by_nccl,
                           const void* out) {
  if (!by_nccl || !Reduces(spec.collective) || !IsFloating(spec.dtype)) by_nccl = false;
  const std::int64_t elements = OutputCount(spec, rank, size);
  for (std::int64_t i = 0; i < elements; ++i) {
    const kernels::Number got = kernels::LoadNumber(spec.dtype, out, i);
    const kernels::Number expected = OutputElement(spec, count, rank, size, i);
    if (got == expected) continue;
    if (by_nccl && std::abs((got - expected).real()) <= Allowed(spec, count, rank, size, i)) continue;
    return absl::DataLossError(absl::StrCat(ToString(spec), spec.in_place ? " in place" : "", ", root ", spec.root,
                                            ": element ", i, " is ", TextOf(got), ", not ", TextOf(expected)));
  }
  return absl::OkStatus();
}

absl::Status CheckCall(CheckedRank& rank, const Schedule* schedule, const CollectiveSpec& base, std::int64_t count) {
  const CollectiveSpec spec = SpecOf(base, count, rank.rank(), rank.size());
  const CallMemory memory = MemoryOf(spec, rank.rank(), rank.size());
  const RankMemory in(rank.device, memory.bytes);
  const RankMemory other(rank.device, memory.bytes);
  in.Write(memory.input);
  const RankMemory& out = spec.in_place ? in : other;
  CollectiveSpec call = spec;
  call.in_place = false;  // the communicator finds out from the pointers whether a call is in place
  const absl::Status status = rank.comm
                                  .Call(call, in.data() + memory.in_at, out.data() + memory.out_at,
                                        {.schedule = schedule, .factor = FactorOf(spec, rank.rank())})
                                  .Wait();
  if (!status.ok()) return status;
  const bool by_nccl = schedule == nullptr || schedule->name == "native";
  const std::vector<std::byte> result = out.Read();
  absl::Status right = CompareOutput(spec, count, rank.rank(), rank.size(), by_nccl, result.data() + memory.out_at);
  if (!right.ok()) {
    return absl::DataLossError(absl::StrCat(schedule == nullptr ? "chosen" : schedule->name, ": ", right.message()));
  }
  if (spec.collective != Collective::kAllReduce || !by_nccl) return right;
  return CheckEqualOnAllRanks(rank, result);
}

absl::Status CheckEqualOnAllRanks(CheckedRank& rank, const std::vector<std::byte>& bytes) {
  const std::uint64_t mine = HashOf(bytes);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(rank.size()));
  if (absl::Status status = rank.comm.AllGather(&mine, all.data(), 1, DType::kU64).Wait(); !status.ok()) return status;
  for (std::size_t peer = 0; peer < all.size(); ++peer) {
    if (all[peer] != all[0]) return absl::DataLossError(absl::StrCat("rank ", peer, " has other bits than rank 0"));
  }
  return absl::OkStatus();
}

}  // namespace tutti::gpu
