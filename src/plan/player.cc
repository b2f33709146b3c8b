#include "plan/player.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "plan/meetings.h"
#include "tutti/cost.h"
#include "tutti/native.h"

namespace tutti {
namespace {

using Number = std::uint32_t;  // the number of a step; all steps are numbered in one sequence, plan by plan

constexpr Number kNone = ~Number{0};
constexpr int kNoNode = -1;

// Lists of numbers, one list for each of `size` owners, filled in two passes: Count every entry, then Add every entry.
class Lists {
 public:
  explicit Lists(std::size_t size) : first_(size + 1) {}

  void Count(std::size_t owner) { ++first_[owner + 1]; }
  void EndCount() {
    for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    entries_.resize(first_.back());
    next_.assign(first_.begin(), first_.end() - 1);
  }
  void Add(std::size_t owner, Number entry) { entries_[next_[owner]++] = entry; }
  absl::Span<const Number> of(std::size_t owner) const {
    return {entries_.data() + first_[owner], first_[owner + 1] - first_[owner]};
  }

 private:
  std::vector<std::uint32_t> first_;
  std::vector<std::uint32_t> next_;
  std::vector<Number> entries_;
};

// The processors that the ranks of one node share.
class Cores {
 public:
  explicit Cores(int count) : cores_(static_cast<std::size_t>(count)) {}

  // Lets `rank` work for `busy` seconds, from `time` at the earliest, and returns when the rank is done.
  double Run(Rank rank, double time, double busy, double switch_s) {
    Core* best = nullptr;
    double earliest = 0;
    for (Core& core : cores_) {
      const double start = std::max(time, core.free) + (core.rank == rank ? 0 : switch_s);
      if (best == nullptr || start < earliest) {
        best = &core;
        earliest = start;
      }
    }
    best->rank = rank;
    best->free = earliest + busy;
    return best->free;
  }

 private:
  struct Core {
    double free = 0;
    Rank rank = kSelf;
  };
  std::vector<Core> cores_;
};

class Player {
 public:
  Player(absl::Span<const Plan> plans, absl::Span<const int> nodes, const CostModel& model)
      : plans_(plans), nodes_(nodes), model_(model), ranks_(static_cast<std::size_t>(plans[0].size)) {
    for (const Plan& plan : plans_) ranks_[plan.rank].plan = &plan;
    for (const Plan& plan : plans_) {
      ranks_[plan.rank].first = static_cast<Number>(steps_.size());
      for (const Step& step : plan.steps) steps_.push_back({.plan = &plan, .step = &step});
    }
    ShareNodes();
    Match();
    Meet();
  }

  double Play() {
    Lists after(steps_.size());
    std::vector<Number> missing(steps_.size(), 0);
    const auto for_each_edge = [&](auto edge) {
      for (Number n = 0; n < steps_.size(); ++n) {
        const Number first = ranks_[steps_[n].plan->rank].first;
        for (const StepId dep : steps_[n].plan->deps_of(*steps_[n].step)) edge(first + dep, n);
        if (steps_[n].source != kNone) edge(steps_[n].source, n);
      }
    };
    for_each_edge([&](Number from, Number /*to*/) { after.Count(from); });
    after.EndCount();
    for_each_edge([&](Number from, Number to) {
      after.Add(from, to);
      ++missing[to];
    });
    using Entry = std::pair<double, Number>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    for (Number n = 0; n < steps_.size(); ++n) {
      if (missing[n] == 0) queue.emplace(0, n);
    }
    double last = 0;
    while (!queue.empty()) {
      const double turn = queue.top().first;
      const Number taken = queue.top().second;
      queue.pop();
      if (steps_[taken].step->kind == StepKind::kSend) {
        if (const std::optional<double> next = PassOn(steps_[taken]); next.has_value()) {
          queue.emplace(*next, taken);
          continue;
        }
      }
      for (const Number n : Take(taken)) {
        last = std::max(last, steps_[n].end);
        for (const Number next : after.of(n)) {
          Played& waiting = steps_[next];
          // A Recv or Wait is posted early, so a message or signal counts from its own arrival on, not from when the
          // step could start.
          if (waiting.source != n) waiting.ready = std::max(waiting.ready, steps_[n].end);
          if (--missing[next] > 0) continue;
          const bool keeps_core = waiting.plan == steps_[n].plan && KeepsCore(waiting);
          queue.emplace(keeps_core ? turn : std::max(waiting.ready, ArrivalOf(waiting)), next);
        }
      }
    }
    return last;
  }

  // The times of the steps, after Play; by plan.
  std::vector<std::vector<StepTime>> Times() const {
    std::vector<std::vector<StepTime>> times;
    times.reserve(plans_.size());
    std::vector<std::size_t> plan_of(ranks_.size());
    for (std::size_t p = 0; p < plans_.size(); ++p) plan_of[plans_[p].rank] = p;
    Number n = 0;
    for (const Plan& plan : plans_) {
      std::vector<StepTime>& of_plan = times.emplace_back();
      of_plan.reserve(plan.steps.size());
      for (; of_plan.size() < plan.steps.size(); ++n) {
        const Played& at = steps_[n];
        StepTime& time = of_plan.emplace_back(StepTime{.begin = at.begin, .worked = at.worked, .end = at.end});
        if (at.source == kNone || at.mirrored) continue;
        const Played& source = steps_[at.source];
        const bool message = source.step->kind == StepKind::kSend;
        time.source_plan = static_cast<int>(plan_of[source.plan->rank]);
        time.source_step = at.source - ranks_[source.plan->rank].first;
        time.left = message ? source.leaves : source.worked;
      }
    }
    return times;
  }

 private:
  enum class Crosses : std::uint8_t { kUnknown, kNo, kYes };
  enum class Place : std::uint8_t { kWithSender, kOutgoing, kIncoming, kArrived };

  struct Played {
    const Plan* plan = nullptr;
    const Step* step = nullptr;
    Number source = kNone;   // the Send of a Recv, or the Signal of a Wait
    Number meeting = kNone;  // of a native step: the index of its collective
    bool mirrored = false;   // the source is this rank's own step, which stands for that of a peer without a plan
    double ready = 0;
    double begin = 0;   // when the rank begins to work on the step
    double worked = 0;  // when the rank goes on to another step
    double end = 0;
    double arrival = 0;                // when the message of a Send, or a Signal, is at the peer
    double leaves = 0;                 // when the message of a Send leaves
    Place place = Place::kWithSender;  // of the message of a Send
  };

  // A native collective: the steps of those of its ranks that have plans.
  struct Collecting {
    std::vector<Number> steps;
    std::size_t absent = 0;  // steps whose ranks have not come to them yet
    double begin = 0;        // when the last one comes
  };

  // The times when the outgoing and the incoming link are free again, and the node whose message came in last.
  struct Connection {
    double out = 0, in = 0;
    int last = kNoNode;
  };

  struct RankState {
    const Plan* plan = nullptr;
    Number first = 0;           // index in steps_ of the first step of the rank's plan
    double engine = 0;          // when the processor is free again
    Connection near;            // to the ranks of the node
    Connection* far = nullptr;  // to other nodes
    Cores* cores = nullptr;     // nullptr: the rank has a processor of its own
    double slower = 1;          // how many ranks share a processor, where only some of them are played
    double others = 0;          // how many other ranks share the rank's processor
  };

  int NodeOf(Rank rank) const {
    if (!nodes_.empty()) return nodes_[rank];
    return model_.ranks_per_node == 0 ? 0 : rank / model_.ranks_per_node;
  }
  const LinkModel& Link(Rank a, Rank b) const {
    return NodeOf(a) == NodeOf(b) ? model_.within_node : model_.between_nodes;
  }

  bool all_played() const { return plans_.size() == ranks_.size(); }
  // Whether the ranks that are played stand for the other ranks of their nodes, which do the same at the same time.
  bool stand_for_others() const { return !all_played() && !HasRoot(plans_[0].spec.collective); }

  // Ranks of one node share its connection to other nodes and its processors.
  void ShareNodes() {
    std::vector<std::pair<int, Rank>> by_node;
    by_node.reserve(ranks_.size());
    for (Rank rank = 0; rank < size(); ++rank) by_node.emplace_back(NodeOf(rank), rank);
    std::sort(by_node.begin(), by_node.end());
    cores_.reserve(ranks_.size());
    connections_.resize(ranks_.size());
    for (std::size_t begin = 0, end = 0; begin < by_node.size(); begin = end) {
      while (end < by_node.size() && by_node[end].first == by_node[begin].first) ++end;
      const absl::Span<const std::pair<int, Rank>> node(&by_node[begin], end - begin);
      for (const auto& [number, rank] : node) {
        ranks_[rank].far = &connections_[static_cast<std::size_t>(stand_for_others() ? rank : node[0].second)];
      }
      if (const auto here = static_cast<int>(node.size()); model_.cores_per_node > 0 && here > model_.cores_per_node) {
        ShareCores(node);
      }
    }
  }

  // Ranks that outnumber the processors of their node take turns. Where only some of the ranks are played, the other
  // ranks are taken to have as much to do.
  void ShareCores(absl::Span<const std::pair<int, Rank>> node) {
    const double share = static_cast<double>(node.size()) / model_.cores_per_node;
    if (all_played()) cores_.emplace_back(model_.cores_per_node);
    for (const auto& [number, rank] : node) {
      if (all_played()) ranks_[rank].cores = &cores_.back();
      if (!all_played()) ranks_[rank].slower = share;
      ranks_[rank].others = share - 1;
    }
  }

  Connection& ConnectionOf(Rank rank, const LinkModel& link) {
    return &link == &model_.within_node ? ranks_[rank].near : *ranks_[rank].far;
  }

  // The time at which a message that `from` sends, which takes a link for `transfer` seconds, is at `rank`.
  double ArrivalAt(Rank rank, const LinkModel& link, Rank from, double leaves, double transfer) {
    const Connection& connection = ConnectionOf(rank, link);
    const bool after_other =
        &link == &model_.between_nodes && connection.last != kNoNode && connection.last != NodeOf(from);
    return std::max(leaves + link.latency_s, connection.in) + transfer * (after_other ? kAfterOtherNode : 1);
  }
  void ComesIn(Rank rank, const LinkModel& link, Rank from, double arrival) {
    Connection& connection = ConnectionOf(rank, link);
    connection.in = arrival;
    connection.last = NodeOf(from);
  }

  // The seconds for which a message that `from` sends to `to` takes the connection.
  double Transfer(const LinkModel& link, Rank from, Rank to, std::int64_t bytes) const {
    const double alone = TransferSeconds(link, bytes);
    if (&link == &model_.within_node || !stand_for_others()) return alone;
    return alone * SendersBeside(from, (to - from + size()) % size());
  }

  // The ranks of the node of `rank` that have the rank `distance` places ahead on another node; at least 1.
  int SendersBeside(Rank rank, int distance) const {
    int senders = 0;
    for (Rank other = 0; other < size(); ++other) {
      senders += NodeOf(other) == NodeOf(rank) && NodeOf((other + distance) % size()) != NodeOf(rank) ? 1 : 0;
    }
    return std::max(senders, 1);
  }

  // Finds the Send of every Recv and the Signal of every Wait.
  void Match() {
    using Message = std::tuple<Rank, Rank, std::uint32_t>;  // from, to, ordinal
    absl::flat_hash_map<Message, Number> messages;          // between ranks that have plans
    Lists sends(plans_.size());                             // by plan, as signals are
    Lists signals(plans_.size());
    const auto for_each = [&](auto visit) {
      Number n = 0;
      for (std::size_t p = 0; p < plans_.size(); ++p) {
        for (const Step& step : plans_[p].steps) visit(p, step, n++);
      }
    };
    std::vector<std::size_t> place(ranks_.size(), plans_.size());
    for (std::size_t p = 0; p < plans_.size(); ++p) place[plans_[p].rank] = p;
    for_each([&](std::size_t p, const Step& step, Number /*n*/) {
      if (step.kind == StepKind::kSignal) signals.Count(p);
      if (step.kind == StepKind::kSend) sends.Count(p);
    });
    sends.EndCount();
    signals.EndCount();
    for_each([&](std::size_t p, const Step& step, Number n) {
      if (step.kind == StepKind::kSignal) signals.Add(p, n);
      if (step.kind != StepKind::kSend) return;
      sends.Add(p, n);
      if (place[step.peer] < plans_.size()) messages.emplace(Message{plans_[p].rank, step.peer, step.ordinal}, n);
    });
    std::vector<std::size_t> received(plans_.size(), 0);  // messages, from the first Send of the plan on
    for_each([&](std::size_t p, const Step& step, Number n) {
      if (step.kind != StepKind::kRecv && step.kind != StepKind::kWait) return;
      const std::size_t from = place[step.peer];
      const bool known = from < plans_.size();
      Played& waiting = steps_[n];
      waiting.mirrored = !known;
      if (step.kind == StepKind::kWait) {
        const absl::Span<const Number> made = signals.of(known ? from : p);
        if (step.ordinal <= made.size()) waiting.source = made[step.ordinal - 1];
        return;
      }
      const absl::Span<const Number> sent = sends.of(p);
      const auto before = static_cast<std::size_t>(std::lower_bound(sent.begin(), sent.end(), n) - sent.begin());
      const std::size_t number = before > 0 ? received[p]++ : 0;
      if (known) {
        const auto message = messages.find(Message{step.peer, plans_[p].rank, step.ordinal});
        if (message != messages.end()) waiting.source = message->second;
      } else if (before > 0) {
        waiting.source = sent[std::min(number, before - 1)];
      }
    });
  }

  // Finds the native steps that are one collective.
  void Meet() {
    for (const Meeting& meeting : MeetingsOf(plans_)) {
      Collecting& collecting = collectives_.emplace_back();
      collecting.absent = meeting.steps.size();
      for (const PlanStep& at : meeting.steps) {
        const Number n = ranks_[plans_[at.plan].rank].first + at.step;
        steps_[n].meeting = static_cast<Number>(collectives_.size() - 1);
        collecting.steps.push_back(n);
      }
    }
  }

  // The seconds that the collective of a native step takes.
  double CollectiveSeconds(const Plan& plan, const Step& step) const {
    const int ranks = NativeSizeOf(plan, step);
    const absl::Span<const Rank> group = plan.group_of(step);
    const auto node = [&](int place) { return NodeOf(group.empty() ? place : group[place]); };
    bool near = true;
    for (int place = 1; near && place < ranks; ++place) near = node(place) == node(0);
    const NativeModel& model = near ? model_.native_within_node : model_.native_between_nodes;
    const CollectiveSpec spec = NativeSpecOf(plan, step);
    const Rank busiest = HasRoot(spec.collective) ? spec.root : 0;
    return model.latency_s + static_cast<double>(NativeBytes(spec, busiest, ranks)) / model.bytes_per_s;
  }

  int size() const { return static_cast<int>(ranks_.size()); }

  // Whether some rank has the rank that is `distance` places ahead on another node.
  bool SomeCrosses(int distance) {
    crosses_.resize(ranks_.size(), Crosses::kUnknown);
    Crosses& known = crosses_[distance];
    for (Rank rank = 0; known == Crosses::kUnknown && rank < size(); ++rank) {
      if (NodeOf(rank) != NodeOf((rank + distance) % size())) known = Crosses::kYes;
    }
    if (known == Crosses::kUnknown) known = Crosses::kNo;
    return known == Crosses::kYes;
  }

  // Whether a rank that shares its processor takes the step before another rank has a turn: a rank goes on until it
  // waits.
  bool KeepsCore(const Played& at) const {
    const RankState& rank = ranks_[at.plan->rank];
    return rank.cores != nullptr && at.step->kind != StepKind::kRecv && at.step->kind != StepKind::kWait &&
           at.ready <= rank.engine;
  }

  // The link over which the message of a Recv comes whose sender has no plan. Where all ranks send to the rank that is
  // equally many places ahead, all go at the pace of the slowest of these links.
  const LinkModel& ArrivesOver(const Played& at) {
    const Rank rank = at.plan->rank;
    const Rank from = at.step->peer;
    const bool passes_on = at.source != kNone && steps_[at.source].step->peer != from;
    const bool far = passes_on && SomeCrosses((rank - from + size()) % size());
    return far ? model_.between_nodes : Link(from, rank);
  }

  // The time at which the message or signal that a step waits for is there.
  double ArrivalOf(const Played& at) {
    const Step& step = *at.step;
    if (step.kind != StepKind::kRecv && step.kind != StepKind::kWait) return 0;
    if (step.kind == StepKind::kWait) return at.source == kNone ? 0 : steps_[at.source].arrival;
    if (at.source != kNone && !at.mirrored) return steps_[at.source].arrival;
    const Rank rank = at.plan->rank;
    const std::int64_t bytes = at.plan->dsts(step)[0].bytes;
    const LinkModel& link = ArrivesOver(at);
    const double leaves = at.source != kNone ? steps_[at.source].leaves : 0;
    return ArrivalAt(rank, link, step.peer, leaves, Transfer(link, step.peer, rank, bytes));
  }

  // Lets the rank of a step work on the step for `busy` seconds, from `time` at the earliest; returns the end.
  double Work(Played& at, double time, double busy) {
    const Rank rank = at.plan->rank;
    RankState& mine = ranks_[rank];
    time = std::max(time, mine.engine);
    if (mine.cores != nullptr) {
      mine.engine = mine.cores->Run(rank, time, busy, model_.switch_s);
      at.begin = mine.engine - busy;
    } else {
      mine.engine = time + busy * mine.slower;
      at.begin = time;
    }
    return at.worked = mine.engine;
  }

  double Computing(const Plan& plan, const Step& step) const {
    const bool copies = step.kind == StepKind::kCopy && model_.copy_bytes_per_s > 0 &&
                        plan.dsts(step)[0].dtype == plan.srcs(step)[0].dtype;
    const double seconds =
        static_cast<double>(TouchedBytes(plan, step)) / (copies ? model_.copy_bytes_per_s : model_.memory_bytes_per_s);
    if (model_.scratch_bytes_per_s == 0) return seconds;
    return std::max(seconds, static_cast<double>(ScratchBytes(plan, step)) / model_.scratch_bytes_per_s);
  }

  // Takes a step, and returns the steps that have an end now: the step itself, or, when the last rank has come to a
  // native collective, the steps of all its ranks.
  absl::Span<const Number> Take(const Number& n) {
    Played& at = steps_[n];
    if (at.step->kind == StepKind::kSend) return {&n, 1};
    if (at.step->kind != StepKind::kNative) {
      TakeAlone(at);
      return {&n, 1};
    }
    Collecting& collecting = collectives_[at.meeting];
    collecting.begin = std::max(collecting.begin, Work(at, at.ready, model_.step_s));
    if (--collecting.absent > 0) return {};
    const double end = collecting.begin + CollectiveSeconds(*at.plan, *at.step);
    for (const Number step : collecting.steps) steps_[step].worked = steps_[step].end = end;
    return collecting.steps;
  }

  void TakeAlone(Played& at) {
    const Plan& plan = *at.plan;
    const Step& step = *at.step;
    const Rank rank = plan.rank;
    if (step.kind == StepKind::kRecv || step.kind == StepKind::kWait) {
      const double arrival = ArrivalOf(at);
      at.end = std::max(at.ready + model_.step_s, arrival);
      // A rank that shares its processor sees what has arrived when its turn comes, after the turns of the other ranks.
      const bool waited = arrival > at.ready;
      if (waited) at.end += ranks_[rank].others * model_.switch_s;
      double busy = 0;
      if (step.kind == StepKind::kRecv) {
        if (at.mirrored || at.source == kNone) ComesIn(rank, ArrivesOver(at), step.peer, arrival);
        busy = ReceivingSeconds(Link(step.peer, rank), plan.dsts(step)[0].bytes);
      }
      at.begin = at.worked = at.end;
      if (busy > 0 || (waited && ranks_[rank].cores != nullptr)) at.end = Work(at, at.end, busy);
      return;
    }
    const double busy = model_.step_s + (Computes(step) ? Computing(plan, step) : 0);
    at.end = Work(at, at.ready, busy);
    at.arrival = at.end + model_.signal_s;
  }

  // Takes the message of a Send to its next place, and returns the time of the turn in which it goes on from there, or
  // nothing when it has arrived. Each link takes the messages in the order of these times, whichever ranks they are of.
  std::optional<double> PassOn(Played& at) {
    const Rank rank = at.plan->rank;
    const Rank peer = at.step->peer;
    const std::int64_t bytes = at.plan->srcs(*at.step)[0].bytes;
    const LinkModel& link = Link(rank, peer);
    const double transfer = Transfer(link, rank, peer, bytes);
    switch (at.place) {
      case Place::kWithSender:
        at.place = Place::kOutgoing;
        return Work(at, at.ready, model_.step_s + SendingSeconds(link, bytes));
      case Place::kOutgoing: {
        Connection& mine = ConnectionOf(rank, link);
        at.place = Place::kIncoming;
        at.leaves = std::max(at.worked, mine.out);
        mine.out = at.end = at.leaves + transfer;
        return at.leaves;
      }
      case Place::kIncoming: {
        at.place = Place::kArrived;
        at.arrival = ArrivalAt(peer, link, rank, at.leaves, transfer);
        ComesIn(peer, link, rank, at.arrival);
        // The sender of an announced message waits until the receiver has copied the message.
        if (link.Announces(bytes)) at.end = at.arrival + ReceivingSeconds(link, bytes);
        return std::nullopt;
      }
      case Place::kArrived:
        break;
    }
    return std::nullopt;
  }

  absl::Span<const Plan> plans_;
  absl::Span<const int> nodes_;
  const CostModel& model_;
  std::vector<Played> steps_;
  std::vector<RankState> ranks_;
  std::vector<Collecting> collectives_;
  std::vector<Cores> cores_;
  std::vector<Connection> connections_;  // to other nodes: by the first rank of the node, or by rank
  std::vector<Crosses> crosses_;         // by distance
};

}  // namespace

bool Computes(const Step& step) { return step.num_dsts > 0 && step.num_srcs > 0 && step.kind != StepKind::kNative; }

std::int64_t TouchedBytes(const Plan& plan, const Step& step) {
  std::int64_t bytes = 0;
  for (const Ref& ref : plan.dsts(step)) bytes += ref.bytes * (step.accumulate ? 2 : 1);
  for (const Ref& ref : plan.srcs(step)) bytes += ref.bytes;
  return bytes;
}

std::int64_t ScratchBytes(const Plan& plan, const Step& step) {
  std::int64_t bytes = 0;
  for (const absl::Span<const Ref> refs : {plan.dsts(step), plan.srcs(step)}) {
    for (const Ref& ref : refs) {
      if (ref.space == Space::kScratch) bytes += ref.bytes;
    }
  }
  return bytes;
}

double Play(absl::Span<const Plan> plans, absl::Span<const int> nodes, const CostModel& model) {
  if (plans.empty()) return 0;
  return Player(plans, nodes, model).Play();
}

absl::StatusOr<std::vector<std::vector<StepTime>>> TimesOf(absl::Span<const Plan> plans, const CostModel& model,
                                                           absl::Span<const int> nodes) {
  if (plans.empty()) return absl::InvalidArgumentError("plans is empty; it needs the plan of at least one rank");
  if (absl::Status valid = CheckNodes(plans, nodes); !valid.ok()) return valid;
  Player player(plans, nodes, model);
  if (absl::Status known = CheckPredicted(player.Play()); !known.ok()) return known;
  return player.Times();
}

absl::Status CheckNodes(absl::Span<const Plan> plans, absl::Span<const int> nodes) {
  if (nodes.empty() || nodes.size() == static_cast<std::size_t>(plans[0].size)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("nodes has ", nodes.size(), " nodes, must be empty or have ",
                                                 plans[0].size, ", one for each rank of the plans"));
}

absl::Status CheckPredicted(double seconds) {
  if (std::isfinite(seconds)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the cost model says nothing of native collectives among these ranks, so no time can be predicted");
}

}  // namespace tutti
