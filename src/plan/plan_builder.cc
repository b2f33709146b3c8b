#include "tutti/plan_builder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plan/dependencies.h"
#include "plan/limits.h"
#include "plan/spaces.h"
#include "plan/writers.h"
#include "tutti/rounding.h"

namespace tutti {
namespace {

// The alignment of scratch and state ranges: ranges start at cache lines, so that two ranges never share a line.
constexpr std::int64_t kAlignment = 64;

// The most segments into which the longest buffer of a call is cut: the limit bounds the time and memory for a plan,
// whatever the count. Segments of 256 KiB stay as they are up to 16 GiB of f32.
constexpr std::int64_t kMaxSegments = 1 << 16;

bool Overlap(const Ref& a, const Ref& b) {
  return a.owner == b.owner && a.space == b.space && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

bool SameBytes(const Ref& a, const Ref& b) {
  return a.owner == b.owner && a.space == b.space && a.offset == b.offset && a.bytes == b.bytes && a.dtype == b.dtype;
}

// The bytes of a message in a plan: none for no elements, which are neither encoded nor sent.
std::int64_t EncodedBytes(std::int64_t count, const CodecChoice& choice) {
  return count > 0 ? choice.codec->encoded_bytes(count, choice.options) : count;
}

std::string Where(const Ref& ref) {
  return absl::StrCat(Name(ref.space), "[", ref.offset, ", ", ref.offset + ref.bytes, ")",
                      ref.owner == kSelf ? "" : absl::StrCat(" of rank ", ref.owner));
}

}  // namespace

Range ChunkOf(std::int64_t count, int parts, int index) {
  if (parts < 1) return {};
  const std::int64_t each = count / parts;
  const std::int64_t longer = count % parts;
  return {index * each + std::min<std::int64_t>(index, longer), each + (index < longer ? 1 : 0)};
}

PlanBuilder::PlanBuilder(std::string name, const CollectiveSpec& spec, Rank rank, int size, const PlanOptions& options)
    : options_(options), spec_(spec), rank_(rank), size_(size), dependencies_(std::make_unique<Dependencies>()) {
  plan_.name = std::move(name);
  plan_.rank = rank;
  plan_.size = size;
  plan_.spec = spec;
  status_ = Validate(spec, rank, size);
  status_.Update(options.Check(size));
  if (!status_.ok()) return;
  // A segment is at most as long as the longest buffer that there can be, so that schedules can compute with multiples
  // of its length.
  options_.segment_bytes = std::clamp(options_.segment_bytes, SizeOf(spec.dtype), kMaxBytes);
  // The root, where there is one, has the longest buffer. No rank knows the longest buffer of all_to_all_v: see
  // AppendSegments.
  if (spec.collective != Collective::kAllToAllV) {
    const std::int64_t longest = std::max(InputCount(spec, spec.root, size), OutputCount(spec, spec.root, size));
    // A Send is one message: a receiver may not know from whom the next message of the same tag comes.
    const std::int64_t most = IsPointToPoint(spec.collective) ? 1 : kMaxSegments;
    const std::int64_t least = DivideRoundingUp(longest, most) * SizeOf(AccumulatorOf(spec.dtype));
    options_.segment_bytes = std::max(options_.segment_bytes, least);
  }
  in_ = InputOf(spec, rank, size);
  out_ = OutputOf(spec, rank, size);
  plan_.in_bytes = SpaceBytes(spec, Space::kIn, rank, size);
  plan_.out_bytes = SpaceBytes(spec, Space::kOut, rank, size);
  waits_.resize(size);
  sends_.resize(size);
  recvs_.resize(size);
}

PlanBuilder::~PlanBuilder() = default;
PlanBuilder::PlanBuilder(PlanBuilder&&) noexcept = default;
PlanBuilder& PlanBuilder::operator=(PlanBuilder&&) noexcept = default;

Ref PlanBuilder::BlockFrom(Rank peer) {
  if (spec_.collective != Collective::kAllToAllV || peer < 0 || peer >= size() || peer == rank()) {
    Fail(absl::StrCat("a block from rank ", peer, ": only an all_to_all_v has blocks, from ranks 0…", size() - 1,
                      " but the rank itself"));
    return {};
  }
  if (size() > kMaxRanksWithBlocks) {
    Fail(absl::StrCat("a block from rank ", peer, ": plans for more than ", kMaxRanksWithBlocks, " ranks have none"));
    return {};
  }
  const std::int64_t count = spec_.recv_counts[static_cast<std::size_t>(peer)];
  return Ref{.space = Space::kBlock, .dtype = spec_.dtype, .bytes = count * SizeOf(spec_.dtype)}.At(peer);
}

Ref PlanBuilder::Allocate(Space space, DType dtype, std::int64_t count) {
  std::int64_t& used = space == Space::kState ? plan_.state_bytes : plan_.scratch_bytes;
  if (SizeOf(dtype) == 0) {
    Fail(absl::StrCat(Name(space), ": dtype ", static_cast<int>(dtype), " does not exist"));
    return {};
  }
  const std::int64_t most = (std::numeric_limits<std::int64_t>::max() - used - kAlignment) / SizeOf(dtype);
  if (count < 0 || count > most) {
    Fail(absl::StrCat(Name(space), ": count ", count, " must be in 0…", most));
    count = 0;
  }
  const std::int64_t offset = count == 0 ? 0 : RoundUp(used, kAlignment);
  if (count > 0) used = offset + count * SizeOf(dtype);
  return {.space = space, .dtype = dtype, .offset = offset, .bytes = count * SizeOf(dtype)};
}

Ref PlanBuilder::Scratch(DType dtype, std::int64_t count) { return Allocate(Space::kScratch, dtype, count); }

Ref PlanBuilder::AddState(StateRange state, DType dtype, std::int64_t count) {
  const auto is_same = [&](const StateRange& other) { return other.name == state.name; };
  if (state.name.empty() || std::any_of(plan_.states.begin(), plan_.states.end(), is_same)) {
    Fail(absl::StrCat("state '", state.name, "': names must be unique and not empty"));
  } else if (state.kind == StateKind::kReplica && (state.of < 0 || state.of >= size())) {
    Fail(absl::StrCat("state ", state.name, ": a replica of rank ", state.of, ", which must be in 0…", size() - 1));
  }
  if (status_.ok() && state.kind == StateKind::kReplica) state.of = WorldRank(state.of);
  state.range = Allocate(Space::kState, dtype, count);
  plan_.states.push_back(std::move(state));
  return plan_.states.back().range;
}

Ref PlanBuilder::Residual(std::string name, DType dtype, std::int64_t count, std::int64_t first_element,
                          std::int32_t divisor) {
  return AddState({.name = std::move(name),
                   .kind = StateKind::kResidual,
                   .range = {},
                   .first_element = first_element,
                   .divisor = divisor},
                  dtype, count);
}

Ref PlanBuilder::Replica(std::string name, Rank of, DType dtype, std::int64_t count) {
  return AddState({.name = std::move(name), .kind = StateKind::kReplica, .of = of}, dtype, count);
}

void PlanBuilder::Fail(const std::string& what) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(
      absl::StrCat(plan_.name, ", rank ", plan_.rank, " of ", plan_.size, ", step ", plan_.steps.size(),
                   WriterOf(plan_, static_cast<StepId>(plan_.steps.size())), ": ", what));
}

bool PlanBuilder::CheckPeer(StepKind kind, Rank peer) {
  if (!status_.ok()) return false;
  // The root of a recv may be kAnySource.
  if (group_.empty() && IsPointToPoint(spec_.collective) && peer == spec_.root) return true;
  if (peer < 0 || peer >= size()) {
    Fail(absl::StrCat(Name(kind), ": peer ", peer, " must be in 0…", size() - 1));
  } else if (peer == rank()) {
    Fail(absl::StrCat(Name(kind), ": peer ", peer, " is the rank of the plan; use Copy"));
  }
  return status_.ok();
}

bool PlanBuilder::CheckMapped(StepKind kind) {
  if (status_.ok() && !options_.peers_mapped) {
    Fail(absl::StrCat(Name(kind), ": options.peers_mapped is false, so peers' memory and signals cannot be used"));
  }
  return status_.ok();
}

bool PlanBuilder::CheckMapped(StepKind kind, Rank peer) {
  if (!CheckMapped(kind)) return false;
  if (!options_.nodes.empty() && options_.nodes[peer] != options_.nodes[rank()]) {
    Fail(absl::StrCat(Name(kind), ": peer ", peer, " is on another node, whose memory and signals cannot be used"));
  }
  return status_.ok();
}

// Finds the first reason why `ref` cannot be used; a range in this rank's own memory gets the owner kSelf.
bool PlanBuilder::CheckRef(StepKind kind, absl::string_view field, Ref& ref, bool written) {
  const std::string at = absl::StrCat(Name(kind), ": ", field, " ");
  if (SizeOf(ref.dtype) == 0) {
    Fail(absl::StrCat(at, "dtype ", static_cast<int>(ref.dtype), " does not exist"));
    return false;
  }
  if (ref.owner == rank()) ref.owner = kSelf;
  if (ref.owner != kSelf) {
    if (ref.owner < 0 || ref.owner >= size()) {
      Fail(absl::StrCat(at, "owner ", ref.owner, " must be in 0…", size() - 1));
      return false;
    }
    if (!CheckMapped(kind, ref.owner)) return false;
    ref.owner = WorldRank(ref.owner);
    if (ref.space == Space::kState) {
      Fail(absl::StrCat(at, Where(ref), ": state of a peer is not mapped"));
      return false;
    }
  }
  if (ref.space == Space::kBlock &&
      (ref.owner == kSelf || spec_.collective != Collective::kAllToAllV || spec_ != plan_.spec)) {
    Fail(absl::StrCat(at, Where(ref), ": only a whole all_to_all_v has blocks, and only in the memory of peers"));
    return false;
  }
  std::int64_t limit = ref.space == Space::kScratch ? plan_.scratch_bytes : plan_.state_bytes;
  if (ref.space == Space::kBlock) limit = BlockFrom(ref.owner).bytes;
  if (ref.space == Space::kIn || ref.space == Space::kOut) {
    const bool unknown = ref.owner != kSelf && plan_.spec.collective == Collective::kAllToAllV;
    limit = unknown ? std::numeric_limits<std::int64_t>::max()
                    : SpaceBytes(plan_.spec, ref.space, ref.owner == kSelf ? plan_.rank : ref.owner, plan_.size);
  }
  if (ref.offset < 0 || ref.bytes < 0 || ref.offset > limit - ref.bytes) {
    Fail(absl::StrCat(at, Where(ref), " lies outside its space of ", limit, " bytes"));
  } else if (ref.offset % SizeOf(ref.dtype) != 0 || ref.bytes % SizeOf(ref.dtype) != 0) {
    Fail(absl::StrCat(at, Where(ref), " is not whole elements of ", Name(ref.dtype)));
  } else if (written && (ref.space == Space::kIn || ref.space == Space::kBlock)) {
    Fail(absl::StrCat(at, Where(ref), ": the input is read-only"));
  }
  return status_.ok();
}

bool PlanBuilder::CheckRefs(StepKind kind, absl::Span<Ref> dsts, absl::Span<Ref> srcs) {
  if (!status_.ok()) return false;
  constexpr std::size_t kMax = std::numeric_limits<std::uint16_t>::max();
  if (dsts.empty() || srcs.empty() || dsts.size() > kMax || srcs.size() > kMax) {
    Fail(absl::StrCat(Name(kind), ": ", dsts.size(), " dsts and ", srcs.size(), " srcs; 1…", kMax, " each are needed"));
    return false;
  }
  for (std::size_t i = 0; i < dsts.size(); ++i) {
    if (!CheckRef(kind, absl::StrCat("dsts[", i, "]"), dsts[i], true)) return false;
  }
  for (std::size_t i = 0; i < srcs.size(); ++i) {
    if (!CheckRef(kind, absl::StrCat("srcs[", i, "]"), srcs[i], false)) return false;
  }
  for (std::size_t i = 0; i < dsts.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (Overlap(dsts[i], dsts[j])) Fail(absl::StrCat(Name(kind), ": dsts[", i, "] overlaps dsts[", j, "]"));
    }
    for (std::size_t j = 0; j < srcs.size(); ++j) {
      if (Overlap(dsts[i], srcs[j]) && !SameBytes(dsts[i], srcs[j])) {
        Fail(absl::StrCat(Name(kind), ": dsts[", i, "] ", Where(dsts[i]), " overlaps srcs[", j, "] ", Where(srcs[j]),
                          " without being the same range"));
      }
    }
  }
  return status_.ok();
}

Step& PlanBuilder::Append(const Step& step, absl::Span<const Ref> dsts, absl::Span<const Ref> srcs) {
  Step added = step;
  added.first_ref = static_cast<std::uint32_t>(plan_.refs.size());
  added.num_dsts = static_cast<std::uint16_t>(dsts.size());
  added.num_srcs = static_cast<std::uint16_t>(srcs.size());
  plan_.refs.insert(plan_.refs.end(), dsts.begin(), dsts.end());
  plan_.refs.insert(plan_.refs.end(), srcs.begin(), srcs.end());
  dependencies_->Add(plan_, added);
  plan_.steps.push_back(added);
  return plan_.steps.back();
}

// Elements of `dtype` in one segment: the same number for the spec's dtype and its accumulator, so that steps that
// work on one chunk are cut at the same elements.
std::int64_t PlanBuilder::SegmentCount(DType dtype) const {
  const DType accumulator = AccumulatorOf(spec().dtype);
  return std::max<std::int64_t>(options_.segment_bytes / SizeOf(dtype == spec().dtype ? accumulator : dtype), 1);
}

void PlanBuilder::AppendSegments(const Step& step, absl::Span<const Ref> dsts, absl::Span<const Ref> srcs) {
  const Ref& whole = dsts.empty() ? srcs[0] : dsts[0];
  std::int64_t segment = SegmentCount(whole.dtype);
  for (const Ref& ref : srcs) segment = std::min(segment, SegmentCount(ref.dtype));
  if (plan_.spec.collective == Collective::kAllToAllV) {  // only the two ranks of a block know its length
    segment = std::max(segment, DivideRoundingUp(whole.count(), std::max<std::int64_t>(kMaxSegments / plan_.size, 1)));
  }
  std::vector<Ref> parts(dsts.size() + srcs.size());
  // A message without elements is sent where the message is the whole call (send, recv), and left out where it is a
  // part of a collective.
  const bool is_call = IsPointToPoint(plan_.spec.collective);
  const std::int64_t segments = std::max<std::int64_t>(DivideRoundingUp(whole.count(), segment), is_call ? 1 : 0);
  for (std::int64_t i = 0; i < segments; ++i) {
    const std::int64_t first = i * segment;
    const std::int64_t n = std::min(segment, whole.count() - first);
    auto part = [&](const Ref& ref) { return ref.Elements(first, n); };
    std::transform(dsts.begin(), dsts.end(), parts.begin(), part);
    std::transform(srcs.begin(), srcs.end(), parts.begin() + static_cast<std::ptrdiff_t>(dsts.size()), part);
    if (step.kind == StepKind::kSend && sends_[step.peer] == kMaxMessagesToAPeer) {
      return Fail(
          absl::StrCat("send: a rank sends at most ", kMaxMessagesToAPeer, " messages to one peer in a run of a plan"));
    }
    Step& added = Append(step, {parts.data(), dsts.size()}, {parts.data() + dsts.size(), srcs.size()});
    if (is_call) continue;
    if (step.kind == StepKind::kSend) added.ordinal = sends_[step.peer]++;
    if (step.kind == StepKind::kRecv) added.ordinal = recvs_[step.peer]++;
  }
}

void PlanBuilder::Send(Rank to, const Ref& src) {
  Ref from = src;
  if (!CheckPeer(StepKind::kSend, to) || !CheckRef(StepKind::kSend, "srcs[0]", from, false)) return;
  AppendSegments({.kind = StepKind::kSend, .peer = WorldRank(to)}, {}, {&from, 1});
}

void PlanBuilder::Recv(Rank from, const Ref& dst) {
  Ref to = dst;
  if (!CheckPeer(StepKind::kRecv, from) || !CheckRef(StepKind::kRecv, "dsts[0]", to, true)) return;
  AppendSegments({.kind = StepKind::kRecv, .peer = WorldRank(from)}, {&to, 1}, {});
}

bool PlanBuilder::CheckSignal() {
  if (!CheckMapped(StepKind::kSignal)) return false;
  if (signals_ < kMaxSignals) return true;
  Fail(absl::StrCat("signal: a rank makes at most ", kMaxSignals, " signals in a run of a plan"));
  return false;
}

void PlanBuilder::Signal() {
  if (!CheckSignal()) return;
  Append({.kind = StepKind::kSignal, .ordinal = ++signals_}, {}, {});
}

void PlanBuilder::SignalAfter(absl::Span<const Ref> touched) {
  if (!CheckSignal()) return;
  std::vector<Ref> refs(touched.begin(), touched.end());
  for (std::size_t i = 0; i < refs.size(); ++i) {
    if (!CheckRef(StepKind::kSignal, absl::StrCat("touched[", i, "]"), refs[i], false)) return;
  }
  Step added = {.kind = StepKind::kSignal, .ordinal = ++signals_};
  added.first_ref = static_cast<std::uint32_t>(plan_.refs.size());
  dependencies_->AddSignalAfter(refs, plan_, added);
  plan_.steps.push_back(added);
}

void PlanBuilder::Wait(Rank peer) {
  if (!CheckPeer(StepKind::kWait, peer) || !CheckMapped(StepKind::kWait, peer)) return;
  const Rank from = WorldRank(peer);
  Append({.kind = StepKind::kWait, .ordinal = ++waits_[from], .peer = from}, {}, {});
}

void PlanBuilder::WaitAll() {
  std::vector<Rank> peers;
  // The nearest successor comes first: when ranks arrive together, each rank then waits for another peer first.
  for (int i = 1; i < size(); ++i) peers.push_back((rank() + i) % size());
  WaitFor(peers);
}

void PlanBuilder::WaitFor(absl::Span<const Rank> peers) {
  if (!CheckMapped(StepKind::kWait)) return;
  if (signals_ == 0) return Fail("wait: WaitAll and WaitFor need a Signal of this rank before them");
  for (const Rank peer : peers) {
    if (!CheckPeer(StepKind::kWait, peer) || !CheckMapped(StepKind::kWait, peer)) return;
    const Rank from = WorldRank(peer);
    if (waits_[from] >= signals_) continue;
    waits_[from] = signals_;
    Append({.kind = StepKind::kWait, .ordinal = signals_, .peer = from}, {}, {});
  }
}

void PlanBuilder::AppendReduce(absl::Span<const Ref> dsts, absl::Span<const Ref> srcs, ReduceOp op,
                               std::size_t divisor) {
  std::vector<Ref> to(dsts.begin(), dsts.end());
  std::vector<Ref> from(srcs.begin(), srcs.end());
  if (!CheckRefs(StepKind::kReduce, absl::MakeSpan(to), absl::MakeSpan(from))) return;
  if (static_cast<std::size_t>(op) >= kAllReduceOps.size()) {
    return Fail(absl::StrCat("reduce: op ", static_cast<int>(op), " does not exist"));
  }
  const DType into = to[0].dtype;
  const DType type = from[0].dtype;
  if (absl::Status defined = CheckOp(type, op); !defined.ok()) {
    return Fail(absl::StrCat("reduce: ", defined.message()));
  }
  if (op == ReduceOp::kPremulSum)
    return Fail(
        "reduce: op premul_sum cannot be used; write the products with ScaleByFactor, then reduce them with op sum");
  const bool rounds = type == DType::kF32 && AccumulatorOf(into) == DType::kF32;
  if (into != type && !rounds) {
    return Fail(absl::StrCat("reduce: dsts of ", Name(into), " cannot hold srcs of ", Name(type),
                             "; equal dtypes, or f32 into f16 or bf16"));
  }
  for (const Ref& ref : to) {
    if (ref.dtype != into || ref.count() != to[0].count()) {
      return Fail(absl::StrCat("reduce: dsts must all be ", Name(into), " and ", to[0].count(), " elements, got ",
                               Name(ref.dtype), " and ", ref.count()));
    }
  }
  for (const Ref& ref : from) {
    if (ref.dtype != type || ref.count() != to[0].count()) {
      return Fail(absl::StrCat("reduce: srcs must all be ", Name(type), " and ", to[0].count(), " elements, got ",
                               Name(ref.dtype), " and ", ref.count()));
    }
  }
  AppendSegments({.kind = StepKind::kReduce, .op = op, .divisor = static_cast<std::int32_t>(divisor)}, to, from);
}

void PlanBuilder::Reduce(absl::Span<const Ref> dsts, absl::Span<const Ref> srcs, ReduceOp op) {
  AppendReduce(dsts, srcs, op, op == ReduceOp::kAvg ? plan_.size : 1);
}

void PlanBuilder::Reduce(const Ref& dst, absl::Span<const Ref> srcs, ReduceOp op) { Reduce({&dst, 1}, srcs, op); }

void PlanBuilder::Mean(const Ref& dst, absl::Span<const Ref> srcs) {
  AppendReduce({&dst, 1}, srcs, ReduceOp::kAvg, srcs.size());
}

void PlanBuilder::Combine(const Ref& dst, absl::Span<const Ref> srcs, absl::Span<const Coefficient> coefficients) {
  AppendCombine(dst, srcs, coefficients, /*finite=*/false);
}

void PlanBuilder::Remainder(const Ref& dst, const Ref& whole, const Ref& part) {
  AppendCombine(dst, {whole, part}, {{1, 1}, {-1, 1}}, /*finite=*/true);
}

void PlanBuilder::AppendCombine(const Ref& dst, absl::Span<const Ref> srcs, absl::Span<const Coefficient> coefficients,
                                bool finite) {
  Ref to = dst;
  std::vector<Ref> from(srcs.begin(), srcs.end());
  if (!CheckRefs(StepKind::kCombine, {&to, 1}, absl::MakeSpan(from))) return;
  if (coefficients.size() != from.size()) {
    return Fail(absl::StrCat("combine: ", coefficients.size(), " coefficients for ", from.size(), " srcs"));
  }
  for (const Ref& ref : from) {
    if (!IsFloating(to.dtype) || ref.dtype != to.dtype || ref.count() != to.count()) {
      return Fail(absl::StrCat("combine: dst and srcs must be of one floating dtype and ", to.count(),
                               " elements, got ", Name(to.dtype), ", and ", Name(ref.dtype), " of ", ref.count()));
    }
  }
  const auto first = static_cast<std::uint32_t>(plan_.coefficients.size());
  plan_.coefficients.insert(plan_.coefficients.end(), coefficients.begin(), coefficients.end());
  AppendSegments({.kind = StepKind::kCombine, .finite = finite, .first_coefficient = first}, {&to, 1}, from);
}

void PlanBuilder::Copy(absl::Span<const Ref> dsts, const Ref& src) {
  std::vector<Ref> to(dsts.begin(), dsts.end());
  Ref from = src;
  if (!CheckRefs(StepKind::kCopy, absl::MakeSpan(to), {&from, 1})) return;
  for (const Ref& ref : to) {
    if (ref.dtype != to[0].dtype) {
      return Fail(absl::StrCat("copy: dsts must all be ", Name(to[0].dtype), ", got ", Name(ref.dtype)));
    }
    if (ref.count() != from.count()) {
      return Fail(absl::StrCat("copy: dsts of ", ref.count(), " elements, srcs[0] of ", from.count()));
    }
  }
  if (!Converts(from.dtype, to[0].dtype)) {
    return Fail(absl::StrCat("copy: ", Name(from.dtype), " cannot be converted into ", Name(to[0].dtype)));
  }
  AppendSegments({.kind = StepKind::kCopy}, to, {&from, 1});
}

void PlanBuilder::Copy(const Ref& dst, const Ref& src) {
  // In place the input often lies already where the output belongs.
  if (SameBytes(dst, src)) return;
  Copy({&dst, 1}, src);
}

void PlanBuilder::Scale(const Ref& dst, const Ref& src, std::int32_t divisor) {
  Ref to = dst;
  Ref from = src;
  if (!CheckRefs(StepKind::kScale, {&to, 1}, {&from, 1})) return;
  if (divisor < 1) return Fail(absl::StrCat("scale: divisor ", divisor, " must be at least 1"));
  if (to.dtype != from.dtype || to.count() != from.count()) {
    return Fail(absl::StrCat("scale: dst must be ", Name(from.dtype), " and ", from.count(), " elements, as src, got ",
                             Name(to.dtype), " and ", to.count()));
  }
  if (!HasOp(to.dtype, ReduceOp::kAvg)) return Fail(absl::StrCat("scale: ", Name(to.dtype), " cannot be divided"));
  AppendSegments({.kind = StepKind::kScale, .divisor = divisor}, {&to, 1}, {&from, 1});
}

void PlanBuilder::ScaleByFactor(const Ref& dst, const Ref& src) {
  Ref to = dst;
  Ref from = src;
  if (!CheckRefs(StepKind::kScale, {&to, 1}, {&from, 1})) return;
  if (to.dtype != from.dtype || to.count() != from.count()) {
    return Fail(absl::StrCat("scale: dst must be ", Name(from.dtype), " and ", from.count(), " elements, as src, got ",
                             Name(to.dtype), " and ", to.count()));
  }
  if (!HasOp(to.dtype, ReduceOp::kPremulSum)) {
    return Fail(absl::StrCat("scale: ", Name(to.dtype), " cannot be multiplied by the factor of a call"));
  }
  AppendSegments({.kind = StepKind::kScale, .by_factor = true}, {&to, 1}, {&from, 1});
}

Ref PlanBuilder::Message(std::int64_t count, const CodecChoice& codec) {
  if (codec.codec == nullptr) {
    Fail("message: codec is null");
    return {};
  }
  return Scratch(DType::kU8, EncodedBytes(count, codec));
}

bool PlanBuilder::CheckCodec(StepKind kind, const Ref& encoded, const Ref& plain, const CodecChoice& choice) {
  if (choice.codec == nullptr) {
    Fail(absl::StrCat(Name(kind), ": codec is null"));
  } else if (absl::Status valid = choice.codec->validate(choice.options); !valid.ok()) {
    Fail(absl::StrCat(Name(kind), ": codec ", choice.codec->name, ": ", valid.message()));
  } else if (encoded.dtype != DType::kU8 || plain.dtype != DType::kF32) {
    Fail(absl::StrCat(Name(kind), ": encoded ranges are u8 and plain ones f32, got ", Name(encoded.dtype), " and ",
                      Name(plain.dtype)));
  } else if (const std::int64_t need = EncodedBytes(plain.count(), choice); encoded.bytes != need) {
    Fail(absl::StrCat(Name(kind), ": ", plain.count(), " elements are encoded in ", need, " bytes, not ", encoded.bytes,
                      "; PlanBuilder::Message gives the right range"));
  }
  return status_.ok();
}

void PlanBuilder::AppendCodec(StepKind kind, Ref dst, Ref src, const CodecChoice& choice, bool accumulate) {
  if (!CheckRefs(kind, {&dst, 1}, {&src, 1})) return;
  const Ref& plain = kind == StepKind::kEncode ? src : dst;
  if (!CheckCodec(kind, kind == StepKind::kEncode ? dst : src, plain, choice) || plain.bytes == 0) return;
  auto found = std::find(plan_.codecs.begin(), plan_.codecs.end(), choice);
  if (found == plan_.codecs.end()) found = plan_.codecs.insert(found, choice);
  const auto index = static_cast<std::uint16_t>(found - plan_.codecs.begin());
  Append({.kind = kind, .accumulate = accumulate, .codec = index}, {&dst, 1}, {&src, 1});
}

void PlanBuilder::Encode(const Ref& dst, const Ref& src, const CodecChoice& codec) {
  AppendCodec(StepKind::kEncode, dst, src, codec, false);
}

void PlanBuilder::Decode(const Ref& dst, const Ref& src, const CodecChoice& codec, bool accumulate) {
  AppendCodec(StepKind::kDecode, dst, src, codec, accumulate);
}

void PlanBuilder::PromiseMixing(std::vector<double> weights, std::vector<int> nodes) {
  if (weights.size() != static_cast<std::size_t>(size())) {
    Fail(absl::StrCat("mixing has ", weights.size(), " weights, must have one per rank, ", size()));
  }
  plan_.mixing = std::move(weights);
  plan_.mixing_nodes = std::move(nodes);
}

void PlanBuilder::Within(const CollectiveSpec& spec, const Ref& in, const Ref& out,
                         absl::FunctionRef<void(PlanBuilder&)> write) {
  if (!status_.ok()) return;
  if (absl::Status valid = Validate(spec, rank(), size()); !valid.ok()) return Fail(std::string(valid.message()));
  if (in.count() != InputCount(spec, rank(), size()) || out.count() != OutputCount(spec, rank(), size())) {
    return Fail(absl::StrCat("Within ", ToString(spec), ": in has ", in.count(), " and out ", out.count(),
                             " elements, must have ", InputCount(spec, rank(), size()), " and ",
                             OutputCount(spec, rank(), size())));
  }
  const CollectiveSpec outer_spec = std::exchange(spec_, spec);
  const Ref outer_in = std::exchange(in_, in);
  const Ref outer_out = std::exchange(out_, out);
  write(*this);
  spec_ = outer_spec;
  in_ = outer_in;
  out_ = outer_out;
}

void PlanBuilder::WithinGroup(absl::Span<const Rank> group, const CollectiveSpec& spec, const Ref& in, const Ref& out,
                              absl::FunctionRef<void(PlanBuilder&)> write) {
  if (!status_.ok()) return;
  const auto own = std::find(group.begin(), group.end(), rank());
  if (own == group.end())
    return Fail(absl::StrCat("WithinGroup: group must contain rank ", rank(), ", whose plan is built"));
  std::vector<Rank> world_ranks;
  std::vector<int> nodes;
  for (const Rank member : group) {
    if (member < 0 || member >= size()) {
      return Fail(absl::StrCat("WithinGroup: group has rank ", member, ", which must be in 0…", size() - 1));
    }
    if (std::count(group.begin(), group.end(), member) > 1) {
      return Fail(absl::StrCat("WithinGroup: group has rank ", member, " twice, must have every rank once"));
    }
    world_ranks.push_back(WorldRank(member));
    if (!options_.nodes.empty()) nodes.push_back(options_.nodes[member]);
  }
  const std::vector<Rank> outer_group = std::exchange(group_, std::move(world_ranks));
  const Rank outer_rank = std::exchange(rank_, static_cast<Rank>(own - group.begin()));
  const int outer_size = std::exchange(size_, static_cast<int>(group.size()));
  const std::vector<int> outer_nodes = std::exchange(options_.nodes, std::move(nodes));
  Within(spec, in, out, write);
  options_.nodes = outer_nodes;
  group_ = outer_group;
  rank_ = outer_rank;
  size_ = outer_size;
}

void PlanBuilder::WriteBy(std::string schedule, absl::FunctionRef<void(PlanBuilder&)> write) {
  const std::size_t part = plan_.parts.size();
  plan_.parts.push_back({.schedule = std::move(schedule),
                         .begin = static_cast<StepId>(plan_.steps.size()),
                         .end = std::numeric_limits<StepId>::max()});
  const std::size_t states = plan_.states.size();
  const std::vector<double> mixing = plan_.mixing;
  write(*this);
  if (plan_.states.size() != states || plan_.mixing != mixing) {
    Fail(absl::StrCat("schedule ", plan_.parts[part].schedule,
                      " keeps state or promises a mix (Residual, Replica, PromiseMixing), which only algorithms may"));
  }
  plan_.parts[part].end = static_cast<StepId>(plan_.steps.size());
}

absl::StatusOr<Plan> PlanBuilder::Build() && {
  if (!status_.ok()) return status_;
  return std::move(plan_);
}

}  // namespace tutti
