#include "comm/link_measurement.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/processor_line.h"
#include "comm/link_fit.h"
#include "comm/link_times.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

// What the first rank of a pair tells the second: the bytes that both send each other now, or one of these.
constexpr std::int64_t kAnswer = 0;  // the second rank sends a few bytes back
constexpr std::int64_t kEnd = -1;

struct Pair {
  Rank first = kSelf;  // kSelf: the world has no such two ranks
  Rank second = kSelf;
};

// The first two ranks that share a node, or that do not.
Pair FindPair(const std::vector<int>& nodes, int size, bool share) {
  for (Rank a = 0; a < size; ++a) {
    for (Rank b = a + 1; b < size; ++b) {
      if ((nodes.empty() || nodes[a] == nodes[b]) == share) return {a, b};
    }
  }
  return {};
}

// In larger worlds no schedule that is chosen sends to all ranks at once.
constexpr int kLargestCrowd = 64;

// How many ranks are not on the node of rank 0.
int RanksOnOtherNodes(const Communicator& world) {
  const std::vector<int>& nodes = world.plan_options().nodes;
  return static_cast<int>(std::count_if(nodes.begin(), nodes.end(), [&](int node) { return node != nodes[0]; }));
}

int MostRanksOfANode(const Communicator& world) {
  const std::vector<int>& nodes = world.plan_options().nodes;
  std::ptrdiff_t most = 0;
  for (const int node : nodes) most = std::max(most, std::count(nodes.begin(), nodes.end(), node));
  return static_cast<int>(most);
}

// One of the two ranks that measure their link.
class LinkEnd {
 public:
  static absl::StatusOr<LinkEnd> Make(Communicator& world, Rank peer) {
    absl::StatusOr<Buffer> memory = world.Allocate(2 * kMaxExchanged);
    if (!memory.ok()) {
      return absl::Status(memory.status().code(),
                          absl::StrCat("the measurement of links at set-up, which TUTTI_MEASURE_LINKS=0 on all ranks "
                                       "leaves out: ",
                                       memory.status().message()));
    }
    // Pages that nobody has written are read faster than others, and written slower.
    std::fill_n(memory->data(), 2 * kMaxExchanged, std::byte{1});
    return LinkEnd(world, peer, *std::move(memory));
  }

  absl::Status Tell(std::int64_t order) { return world_.Send(&order, 1, DType::kI64, peer_, kOptions).Wait(); }
  absl::StatusOr<std::int64_t> Hear() {
    std::int64_t order = 0;
    if (absl::Status status = world_.Recv(&order, 1, DType::kI64, peer_, kOptions).Wait(); !status.ok()) return status;
    return order;
  }

  // Sends and receives `bytes` at the same time.
  absl::Status Exchange(std::int64_t bytes) {
    Work in = world_.Recv(memory_.data() + kMaxExchanged, bytes, DType::kU8, peer_, kOptions);
    Work out = world_.Send(memory_.data(), bytes, DType::kU8, peer_, kOptions);
    const absl::Status sent = out.Wait();
    const absl::Status received = in.Wait();
    return sent.ok() ? received : sent;
  }

 private:
  static constexpr CallOptions kOptions{.caller_drives = true};

  LinkEnd(Communicator& world, Rank peer, Buffer memory) : world_(world), peer_(peer), memory_(std::move(memory)) {}

  Communicator& world_;
  Rank peer_;
  Buffer memory_;
};

// The second rank's part.
absl::Status Answer(LinkEnd& end) {
  for (;;) {
    const absl::StatusOr<std::int64_t> order = end.Hear();
    if (!order.ok()) return order.status();
    if (*order == kEnd) return absl::OkStatus();
    if (absl::Status status = *order == kAnswer ? end.Tell(kAnswer) : end.Exchange(*order); !status.ok()) return status;
  }
}

// The first rank's part.
absl::StatusOr<LinkNanos> Lead(LinkEnd& end) {
  absl::StatusOr<LinkNanos> nanos = TimeLink([&](std::int64_t bytes) -> absl::StatusOr<std::int64_t> {
    const std::int64_t start = MonotonicNanos();
    absl::Status status = end.Tell(bytes);
    if (status.ok()) status = bytes == kAnswer ? end.Hear().status() : end.Exchange(bytes);
    if (!status.ok()) return status;
    return MonotonicNanos() - start;
  });
  if (!nanos.ok()) return nanos.status();
  if (absl::Status status = end.Tell(kEnd); !status.ok()) return status;
  return nanos;
}

// Gives all ranks the numbers of rank `from`.
absl::Status TellAll(Communicator& world, absl::Span<std::int64_t> numbers, Rank from) {
  // The call names its schedule: a choice by the model before the measurement must not be remembered.
  const absl::StatusOr<const Schedule*> binomial = FindSchedule(Collective::kBroadcast, "binomial");
  if (!binomial.ok()) return binomial.status();
  return world
      .Broadcast(numbers.data(), numbers.data(), std::ssize(numbers), DType::kI64, from, {.schedule = *binomial})
      .Wait();
}

// Adds to `nanos` how long every rank sends every other rank a few bytes: the means over all ranks, and over a few runs
// without the slowest ones, in which a rank may have been stopped. A median would be no guide: in every other run the
// messages of ranks that are ahead have come already. Nor would one rank be: of ranks that share processors, some have
// one for themselves for a while.
absl::Status MeasureCrowd(Communicator& world, LinkNanos& nanos) {
  constexpr int kRuns = 10;
  constexpr int kCounted = 8;
  // The calls name their schedules, as in TellAll.
  const absl::StatusOr<const Schedule*> pairwise = FindSchedule(Collective::kAllToAll, "pairwise");
  if (!pairwise.ok()) return pairwise.status();
  const absl::StatusOr<const Schedule*> doubling = FindSchedule(Collective::kAllReduce, "recursive_doubling");
  if (!doubling.ok()) return doubling.status();
  const std::vector<std::int32_t> in(static_cast<std::size_t>(world.size()));
  std::vector<std::int32_t> out(in.size());
  const ProcessorLine line;                                       // of this thread, which drives its calls
  std::array<std::pair<std::int64_t, std::int64_t>, kRuns> runs;  // nanoseconds, and those of them in line
  for (auto& [time, in_line] : runs) {
    const std::int64_t line_before = line.Nanos();
    const std::int64_t start = MonotonicNanos();
    absl::Status status =
        world.AllToAll(in.data(), out.data(), 1, DType::kI32, {.schedule = *pairwise, .caller_drives = true}).Wait();
    if (!status.ok()) return status;
    time = MonotonicNanos() - start;
    in_line = line.Nanos() - line_before;
  }
  std::sort(runs.begin(), runs.end());
  std::array<std::int64_t, 2> means = {};
  for (int run = 0; run < kCounted; ++run) {
    means[0] += runs[run].first / kCounted;
    means[1] += runs[run].second / kCounted;
  }
  if (absl::Status status =
          world.AllReduce(means.data(), means.data(), 2, DType::kI64, ReduceOp::kSum, {.schedule = *doubling}).Wait();
      !status.ok()) {
    return status;
  }
  nanos.crowd = means[0] / world.size();
  nanos.in_line = means[1] / world.size();
  nanos.messages = world.size() - 1;
  return absl::OkStatus();
}

// All ranks of the world end with what the pair measured.
absl::StatusOr<LinkNanos> MeasureLink(Communicator& world, const Pair& pair) {
  std::array<std::int64_t, 3> told = {};
  if (world.rank() == pair.first || world.rank() == pair.second) {
    const bool leads = world.rank() == pair.first;
    absl::StatusOr<LinkEnd> end = LinkEnd::Make(world, leads ? pair.second : pair.first);
    if (!end.ok()) return end.status();
    if (leads) {
      const absl::StatusOr<LinkNanos> nanos = Lead(*end);
      if (!nanos.ok()) return nanos.status();
      told = {nanos->trip, nanos->exchange, nanos->bytes};
    } else if (absl::Status status = Answer(*end); !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = TellAll(world, absl::MakeSpan(told), pair.first); !status.ok()) return status;
  return LinkNanos{.trip = told[0], .exchange = told[1], .bytes = told[2]};
}

}  // namespace

absl::StatusOr<CostModel> MeasureLinks(Communicator& world, const CostModel& model, bool within_nodes) {
  CostModel measured = model;
  for (const bool between : {false, true}) {
    const Pair pair = FindPair(world.plan_options().nodes, world.size(), !between);
    if (pair.first == kSelf || !(between || within_nodes)) continue;
    absl::StatusOr<LinkNanos> nanos = MeasureLink(world, pair);
    if (!nanos.ok()) return nanos.status();
    const int peers = RanksOnOtherNodes(world);
    if (between && peers > 1 && world.size() <= kLargestCrowd) {  // one peer would tell nothing: FitLink
      if (absl::Status status = MeasureCrowd(world, *nanos); !status.ok()) return status;
      nanos->peers = peers;
      // The model itself lets the ranks of a node take turns on the node's processors.
      if (model.cores_per_node > 0 && MostRanksOfANode(world) > model.cores_per_node) nanos->in_line = 0;
    }
    LinkModel& link = between ? measured.between_nodes : measured.within_node;
    link = FitLink(link, model.step_s, *nanos, between);
  }
  return measured;
}

}  // namespace tutti
