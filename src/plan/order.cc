#include "plan/order.h"

#include <algorithm>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/meetings.h"
#include "plan/writers.h"
#include "tutti/native.h"
#include "tutti/print.h"

namespace tutti {
namespace {

// Whether every rank of a native collective gets something from every other one.
bool GetsFromAll(Collective collective) { return !HasRoot(collective); }

}  // namespace

Order::Order(absl::Span<const Plan> plans) : plans_(plans) {
  for (int p = 0; p < static_cast<int>(plans.size()); ++p) {
    first_.push_back(static_cast<std::uint32_t>(serial_.size()));
    for (StepId s = 0; s < plans[p].steps.size(); ++s) serial_.push_back({p, s});
  }
}

absl::StatusOr<Order> Order::Of(absl::Span<const Plan> plans) {
  Order order(plans);
  if (absl::Status status = order.Match(); !status.ok()) return status;
  if (absl::Status status = order.Meet(); !status.ok()) return status;
  if (absl::Status status = order.Sort(); !status.ok()) return status;
  order.Link();
  return order;
}

std::string Order::Describe(int plan, StepId step) const {
  const Plan& p = plans_[plan];
  return absl::StrCat("rank ", p.rank, " step ", step, " (", ToText(p, p.steps[step]), ")", WriterOf(p, step));
}

// Finds the Send of every Recv and the Signal of every Wait.
absl::Status Order::Match() {
  using Key = std::tuple<Rank, Rank, std::uint32_t>;  // from, to (or kSelf for a signal), ordinal
  absl::flat_hash_map<Key, std::uint32_t> sources;
  auto error = [&](std::uint32_t n, absl::string_view what) {
    return absl::FailedPreconditionError(absl::StrCat(Describe(serial_[n].plan, serial_[n].step), ": ", what));
  };
  for (std::uint32_t n = 0; n < serial_.size(); ++n) {
    const Plan& plan = plans_[serial_[n].plan];
    const Step& step = plan.steps[serial_[n].step];
    if (step.kind != StepKind::kSend && step.kind != StepKind::kSignal) continue;
    if (!sources.emplace(Key{plan.rank, step.peer, step.ordinal}, n).second) {
      return error(n, "another step of this rank has the same ordinal");
    }
  }
  match_.assign(serial_.size(), kNone);
  std::size_t unmatched_sends = 0;
  for (const Node& node : serial_) unmatched_sends += plans_[node.plan].steps[node.step].kind == StepKind::kSend;
  for (std::uint32_t n = 0; n < serial_.size(); ++n) {
    const Plan& plan = plans_[serial_[n].plan];
    const Step& step = plan.steps[serial_[n].step];
    if (step.kind != StepKind::kRecv && step.kind != StepKind::kWait) continue;
    const bool recv = step.kind == StepKind::kRecv;
    const auto source = sources.find(Key{step.peer, recv ? plan.rank : kSelf, step.ordinal});
    if (source == sources.end()) {
      return error(n, recv ? "no rank sends this message (a range of zero elements makes no message)"
                           : absl::StrCat("rank ", step.peer, " makes no signal with ordinal ", step.ordinal));
    }
    match_[n] = source->second;
    if (!recv) continue;
    const Node& from = serial_[source->second];
    const Ref& sent = plans_[from.plan].srcs(plans_[from.plan].steps[from.step])[0];
    const Ref& received = plan.dsts(step)[0];
    if (match_[source->second] != kNone) return error(n, "another step receives this message too");
    match_[source->second] = n;
    --unmatched_sends;
    if (sent.bytes != received.bytes || sent.dtype != received.dtype) {
      return error(n, absl::StrCat("receives ", received.bytes, " bytes of ", Name(received.dtype), ", but ",
                                   Describe(from.plan, from.step), " sends ", sent.bytes, " of ", Name(sent.dtype)));
    }
  }
  for (std::uint32_t n = 0; unmatched_sends > 0 && n < serial_.size(); ++n) {
    const bool send = plans_[serial_[n].plan].steps[serial_[n].step].kind == StepKind::kSend;
    if (send && match_[n] == kNone)
      return error(n, "no step receives this message (a range of zero elements makes no message)");
  }
  return absl::OkStatus();
}

// Finds the native steps that are one collective.
absl::Status Order::Meet() {
  for (const Meeting& meeting : MeetingsOf(plans_)) {
    if (absl::Status status = CheckMeeting(plans_, meeting); !status.ok()) return status;
    std::vector<std::uint32_t>& steps = meetings_.emplace_back(meeting.steps.size());
    for (const PlanStep& at : meeting.steps) {
      const Plan& plan = plans_[at.plan];
      const std::uint32_t n = first_[at.plan] + at.step;
      steps[static_cast<std::size_t>(NativePlaceOf(plan, plan.steps[at.step], plan.rank))] = n;
      match_[n] = static_cast<std::uint32_t>(meetings_.size() - 1);
    }
  }
  return absl::OkStatus();
}

// Sorts the beginnings (2n) and ends (2n + 1) of all steps n, and, behind these, the moments at which all ranks of a
// native collective have begun their steps.
absl::Status Order::Sort() {
  std::vector<Pair> edges;
  for (std::uint32_t n = 0; n < serial_.size(); ++n) {
    const Plan& plan = plans_[serial_[n].plan];
    const Step& step = plan.steps[serial_[n].step];
    edges.emplace_back(2 * n, 2 * n + 1);
    for (StepId dep : plan.deps_of(step)) edges.emplace_back(2 * (first_[serial_[n].plan] + dep) + 1, 2 * n);
    if (step.kind == StepKind::kWait) edges.emplace_back(2 * match_[n] + 1, 2 * n + 1);
    if (step.kind == StepKind::kRecv) {
      edges.emplace_back(2 * match_[n], 2 * n + 1);
      edges.emplace_back(2 * n, 2 * match_[n] + 1);  // a long message leaves only when its receiver is ready
    }
    if (step.kind == StepKind::kNative) {
      const auto all_here = static_cast<std::uint32_t>(2 * serial_.size() + match_[n]);
      edges.emplace_back(2 * n, all_here);
      edges.emplace_back(all_here, 2 * n + 1);
    }
  }
  const std::size_t events = 2 * serial_.size() + meetings_.size();
  std::vector<std::uint32_t> missing(events, 0);
  std::vector<std::uint32_t> first(events + 1, 0);
  for (const Pair& edge : edges) {
    ++missing[edge.second];
    ++first[edge.first + 1];
  }
  for (std::size_t e = 0; e < events; ++e) first[e + 1] += first[e];
  std::vector<std::uint32_t> next(edges.size());
  std::vector<std::uint32_t> fill(first.begin(), first.end() - 1);
  for (const Pair& edge : edges) next[fill[edge.first]++] = edge.second;

  std::vector<std::uint32_t> sorted;
  sorted.reserve(events);
  for (std::uint32_t e = 0; e < events; ++e) {
    if (missing[e] == 0) sorted.push_back(e);
  }
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::uint32_t k = first[sorted[i]]; k < first[sorted[i] + 1]; ++k) {
      if (--missing[next[k]] == 0) sorted.push_back(next[k]);
    }
  }
  if (sorted.size() < events) return absl::FailedPreconditionError(Circle(edges, missing));

  // The position of a Send is that of its beginning, because its Recv may end before the Send does; the position of
  // every other step is that of its end.
  position_.resize(serial_.size());
  for (std::uint32_t e : sorted) {
    if (e / 2 >= serial_.size()) continue;  // no event of one step
    const Node node = serial_[e / 2];
    const bool begin = e % 2 == 0;
    if (begin != (plans_[node.plan].steps[node.step].kind == StepKind::kSend)) continue;
    position_[e / 2] = static_cast<Position>(nodes_.size());
    nodes_.push_back(node);
  }
  return absl::OkStatus();
}

// Describes steps that wait for each other in a circle; `missing` counts what each event still waits for.
std::string Order::Circle(absl::Span<const Pair> edges, absl::Span<const std::uint32_t> missing) const {
  std::vector<std::uint32_t> cause(missing.size(), kNone);
  for (const Pair& edge : edges) {
    if (missing[edge.first] > 0) cause[edge.second] = edge.first;
  }
  auto at = static_cast<std::uint32_t>(
      std::find_if(missing.begin(), missing.end(), [](std::uint32_t m) { return m > 0; }) - missing.begin());
  for (std::size_t i = 0; i < missing.size(); ++i) at = cause[at];  // now `at` is surely on the circle
  std::vector<std::string> steps;
  const std::uint32_t start = at;
  do {
    if (at / 2 < serial_.size()) {
      const std::string step = Describe(serial_[at / 2].plan, serial_[at / 2].step);
      if (steps.empty() || steps.back() != step) steps.push_back(step);
    }
    at = cause[at];
  } while (at != start && steps.size() < 8);
  return absl::StrCat("deadlock: each waits for the next: ", absl::StrJoin(steps, ", "));
}

// Lists the steps directly before every position.
void Order::Link() {
  source_.assign(nodes_.size(), kNone);
  before_of_.resize(nodes_.size());
  for (const std::vector<std::uint32_t>& meeting : meetings_) {
    std::vector<Position>& partners = partners_.emplace_back();
    for (const std::uint32_t n : meeting) partners.push_back(position_[n]);
  }
  for (Position at = 0; at < nodes_.size(); ++at) {
    const Step& s = step(at);
    const std::uint32_t serial = first_[nodes_[at].plan] + nodes_[at].step;
    if (s.kind == StepKind::kNative) source_[at] = match_[serial];
    if (s.kind == StepKind::kRecv || s.kind == StepKind::kWait) source_[at] = position_[match_[serial]];
  }
  // Where all ranks of a native collective get the inputs of all, they have one list of steps before them.
  std::vector<std::optional<List>> common(meetings_.size());
  for (Position at = 0; at < nodes_.size(); ++at) {
    const Step& s = step(at);
    const bool native = s.kind == StepKind::kNative;
    const bool all_give = native && GetsFromAll(s.collective);
    if (all_give && common[source_[at]].has_value()) {
      before_of_[at] = *common[source_[at]];
      continue;
    }
    const std::size_t begin = before_.size();
    const auto add_deps = [&](Position of) {
      const std::uint32_t first = first_[nodes_[of].plan];
      for (const StepId dep : plan(of).deps_of(step(of))) before_.push_back(position_[first + dep]);
    };
    if (native) {
      for (const Position giver : givers(at)) add_deps(giver);
    } else {
      add_deps(at);
    }
    if (s.kind == StepKind::kRecv || s.kind == StepKind::kWait) before_.push_back(source_[at]);
    before_of_[at] = {begin, before_.size() - begin};
    if (all_give) common[source_[at]] = before_of_[at];
  }
}

std::vector<Position> Order::givers(Position at) const {
  const absl::Span<const Position> all = partners(at);
  const Step& s = step(at);
  const bool is_root = s.peer == plan(at).rank;
  const bool gathers = s.collective == Collective::kReduce || s.collective == Collective::kGather;
  if (GetsFromAll(s.collective) || (gathers && is_root)) return {all.begin(), all.end()};
  if (gathers || is_root) return {at};
  return {at, all[static_cast<std::size_t>(NativePlaceOf(plan(at), s, s.peer))]};
}

std::optional<Order::Pair> Order::FirstUnordered(std::vector<Pair> pairs, absl::FunctionRef<void(double)> done) const {
  std::erase_if(pairs, [&](const Pair& pair) {
    const absl::Span<const Position> direct = before(pair.second);
    return std::find(direct.begin(), direct.end(), pair.first) != direct.end();
  });
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  // The steps of one block of earlier steps that happen before each later step, as bits: memory stays small, and time
  // is steps² / 64 at worst.
  constexpr Position kBlock = 1024;
  constexpr std::size_t kWords = kBlock / 64;
  std::optional<Pair> found;
  std::vector<std::uint64_t> bits;
  for (auto pair = pairs.begin(); pair != pairs.end();) {
    const Position block = pair->first;
    done(static_cast<double>(pair - pairs.begin()) / static_cast<double>(pairs.size()));
    auto end = pair;
    Position last = 0;
    for (; end != pairs.end() && end->first < block + kBlock; ++end) last = std::max(last, end->second);
    bits.assign((last - block + 1) * kWords, 0);
    for (Position at = block; at <= last; ++at) {
      std::uint64_t* mine = &bits[(at - block) * kWords];
      if (at < block + kBlock) mine[(at - block) / 64] |= std::uint64_t{1} << ((at - block) % 64);
      for (Position earlier : before(at)) {
        if (earlier < block) continue;
        const std::uint64_t* theirs = &bits[(earlier - block) * kWords];
        for (std::size_t w = 0; w < kWords; ++w) mine[w] |= theirs[w];
      }
    }
    for (; pair != end; ++pair) {
      const Position bit = pair->first - block;
      const bool ordered = bits[(pair->second - block) * kWords + bit / 64] >> (bit % 64) & 1;
      if (!ordered && (!found || pair->second < found->second)) found = *pair;
    }
  }
  return found;
}

}  // namespace tutti
