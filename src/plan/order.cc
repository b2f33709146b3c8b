#include "plan/order.h"

#include <algorithm>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tutti/print.h"

namespace tutti {

Order::Order(absl::Span<const Plan> plans) : plans_(plans) {
  for (int p = 0; p < static_cast<int>(plans.size()); ++p) {
    first_.push_back(static_cast<std::uint32_t>(serial_.size()));
    for (StepId s = 0; s < plans[p].steps.size(); ++s) serial_.push_back({p, s});
  }
}

absl::StatusOr<Order> Order::Of(absl::Span<const Plan> plans) {
  Order order(plans);
  if (absl::Status status = order.Match(); !status.ok()) return status;
  if (absl::Status status = order.Sort(); !status.ok()) return status;
  order.Link();
  return order;
}

std::string Order::Describe(int plan, StepId step) const {
  const Plan& p = plans_[plan];
  return absl::StrCat("rank ", p.rank, " step ", step, " (", ToText(p, p.steps[step]), ")");
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
      return error(n, recv ? "no rank sends this message"
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
    if (send && match_[n] == kNone) return error(n, "no step receives this message");
  }
  return absl::OkStatus();
}

// Sorts the beginnings (2n) and ends (2n + 1) of all steps n.
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
  }
  const std::size_t events = 2 * serial_.size();
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
    const std::string step = Describe(serial_[at / 2].plan, serial_[at / 2].step);
    if (steps.empty() || steps.back() != step) steps.push_back(step);
    at = cause[at];
  } while (at != start && steps.size() < 8);
  return absl::StrCat("deadlock: each waits for the next: ", absl::StrJoin(steps, ", "));
}

// Lists the steps directly before every position.
void Order::Link() {
  source_.assign(nodes_.size(), kNone);
  first_before_.assign(1, 0);
  for (Position at = 0; at < nodes_.size(); ++at) {
    const Step& s = step(at);
    const std::uint32_t first = first_[nodes_[at].plan];
    for (StepId dep : plan(at).deps_of(s)) before_.push_back(position_[first + dep]);
    if (s.kind == StepKind::kRecv || s.kind == StepKind::kWait) {
      source_[at] = position_[match_[first + nodes_[at].step]];
      before_.push_back(source_[at]);
    }
    first_before_.push_back(static_cast<std::uint32_t>(before_.size()));
  }
}

std::optional<Order::Pair> Order::FirstUnordered(std::vector<Pair> pairs) const {
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
