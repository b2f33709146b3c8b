#include "comm/link_measurement.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/clock.h"
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

// One of the two ranks that measure their link.
class LinkEnd {
 public:
  static absl::StatusOr<LinkEnd> Make(Communicator& world, Rank peer) {
    absl::StatusOr<Buffer> memory = world.Allocate(2 * kMostExchanged);
    if (!memory.ok()) return memory.status();
    // Pages that nobody has written are read faster than others, and written slower.
    std::fill_n(memory->data(), 2 * kMostExchanged, std::byte{1});
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
    Work in = world_.Recv(memory_.data() + kMostExchanged, bytes, DType::kU8, peer_, kOptions);
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

// The nanoseconds in which every rank sends every other rank a few bytes: the mean on rank 0 of a few runs without the
// slowest ones, in which a rank may have lost its processor. A median would be no guide: in every other run the
// messages of ranks that are ahead have come already.
absl::StatusOr<std::int64_t> MeasureCrowd(Communicator& world) {
  constexpr int kRuns = 10;
  constexpr int kCounted = 8;
  const absl::StatusOr<const Schedule*> pairwise = FindSchedule(Collective::kAllToAll, "pairwise");
  if (!pairwise.ok()) return pairwise.status();
  const std::vector<std::int32_t> in(static_cast<std::size_t>(world.size()));
  std::vector<std::int32_t> out(in.size());
  std::array<std::int64_t, kRuns> nanos = {};
  for (std::int64_t& run : nanos) {
    const std::int64_t start = MonotonicNanos();
    const absl::Status status =
        world.AllToAll(in.data(), out.data(), 1, DType::kI32, {.schedule = *pairwise, .caller_drives = true}).Wait();
    if (!status.ok()) return status;
    run = MonotonicNanos() - start;
  }
  std::sort(nanos.begin(), nanos.end());
  std::int64_t mean = std::accumulate(nanos.begin(), nanos.begin() + kCounted, std::int64_t{0}) / kCounted;
  if (absl::Status status = TellAll(world, {&mean, 1}, /*from=*/0); !status.ok()) return status;
  return mean;
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
      const absl::StatusOr<std::int64_t> crowd = MeasureCrowd(world);
      if (!crowd.ok()) return crowd.status();
      nanos->crowd = *crowd;
      nanos->peers = peers;
    }
    LinkModel& link = between ? measured.between_nodes : measured.within_node;
    link = FitLink(link, model.step_s, *nanos, between);
  }
  return measured;
}

}  // namespace tutti
