// tutti plan all_reduce:ring --ranks 8 --bytes 1M: prints, costs, draws and verifies the plans that a call would run.
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bindings/cli/command.h"
#include "bindings/cli/flags.h"
#include "bindings/cli/plan_cost.h"
#include "bindings/cli/plan_picture.h"
#include "bindings/cli/plan_request.h"
#include "bindings/cli/sizes.h"
#include "tutti/print.h"
#include "tutti/verify.h"

namespace tutti::cli {
namespace {

// A verification of the plans of so many ranks may take long enough that a user wonders what happens.
constexpr int kManyRanks = 512;

struct PlanFlags {
  PlanRequest request;
  Rank rank = 0;
  bool mapped = false;  // the default, which --messages excludes
  bool messages = false;
  bool native = false;
  bool verify = false;
  bool cost = false;
  CostModel model = DefaultCostModel();
  std::string draw;
};

void Print(const std::string& text) { std::fputs(text.c_str(), stdout); }

absl::StatusOr<int> ShowPlan(PlanFlags flags) {
  PlanOptions& options = flags.request.options;
  const int on_node = flags.model.ranks_per_node;
  const bool one_node = on_node == 0 || on_node >= flags.request.ranks;
  for (Rank rank = 0; rank < flags.request.ranks && !one_node; ++rank) options.nodes.push_back(rank / on_node);
  options.peers_mapped = !flags.messages;
  if (flags.native) options.native = CollectivesOfNccl();
  options.cost_model = std::make_shared<const CostModel>(flags.model);
  const absl::StatusOr<PlanFamily> family = Resolve(flags.request);
  if (!family.ok()) return family.status();
  if (flags.rank >= family->ranks) {
    return absl::InvalidArgumentError(absl::StrCat("--rank ", flags.rank, " must be in 0…", family->ranks - 1));
  }
  const absl::StatusOr<Plan> plan = family->build(flags.rank);
  if (!plan.ok()) return plan.status();
  std::vector<Plan> plans;
  if (!flags.draw.empty()) {
    absl::StatusOr<std::vector<Plan>> all = BuildAll(*family);
    if (!all.ok()) return all.status();
    if (absl::Status drawable = CheckDrawable(*all, flags.draw); !drawable.ok()) return drawable;
    plans = *std::move(all);
  }
  Print(absl::StrCat(family->explanation, ToText(*plan)));
  Print(absl::StrCat(plan->steps.size(), " steps, ", WireBytes(*plan), " bytes on the wire\n"));
  if (flags.cost) {
    const absl::StatusOr<std::string> table = CostTable(flags.request, flags.model);
    if (!table.ok()) return table.status();
    Print(*table);
  }
  if (flags.verify) {
    std::fflush(stdout);  // what follows may take long
    if (family->ranks >= kManyRanks) {
      std::fprintf(stderr, "tutti: verifying the plans of %d ranks; this can take minutes\n", family->ranks);
    }
    if (plans.empty()) {
      absl::StatusOr<std::vector<Plan>> all = BuildAll(*family);
      if (!all.ok()) return all.status();
      plans = *std::move(all);
    }
    if (absl::Status verified = Verify(plans); !verified.ok()) return verified;
    Print(absl::StrCat("verified: all ", plans.size(),
                       " ranks end with exactly what the collective promises; no deadlock, no race\n"));
  }
  if (!flags.draw.empty()) {
    if (absl::Status drawn = DrawPlans(plans, flags.draw); !drawn.ok()) return drawn;
    Print(absl::StrCat("drawn: ", flags.draw, "\n"));
  }
  return 0;
}

// The options --PREFIXlatency and --PREFIXbandwidth of `link`, a LinkModel or NativeModel.
template <typename Link>
void AddLink(CLI::App& plan, const std::string& prefix, Link& link, const std::string& latency,
             const std::string& bandwidth) {
  const std::string what_for = "For the choice of a schedule and --cost: ";
  plan.add_option("--" + prefix + "latency", link.latency_s, what_for + "seconds that " + latency)
      ->check(NumberWithin(0, 1))
      ->capture_default_str();
  plan.add_option("--" + prefix + "bandwidth", link.bytes_per_s, what_for + "bytes that " + bandwidth + " per second")
      ->check(NumberWithin(1, 1e15))
      ->capture_default_str();
}

void AddLinks(CLI::App& plan, CostModel& model) {
  const std::string message = "a message of no bytes is on its way ";
  const std::string native = "a native collective of no bytes takes ";
  AddLink(plan, "", model.within_node, message + "inside a node", "a link inside a node carries");
  AddLink(plan, "node-", model.between_nodes, message + "between nodes", "a link between nodes carries");
  AddLink(plan, "native-", model.native_within_node, native + "inside a node",
          "a rank moves in a native collective inside a node (0: not known)");
  AddLink(plan, "node-native-", model.native_between_nodes, native + "between nodes",
          "a rank moves in a native collective between nodes (0: not known)");
}

void AddFlags(CLI::App& plan, PlanFlags& flags) {
  PlanRequest& request = flags.request;
  plan.add_option("spec", request.spec,
                  "COLLECTIVE:SCHEDULE; COLLECTIVE alone, to see which schedule would be chosen and why; or a strategy "
                  "name, ALGORITHM:option=value,…")
      ->required();
  plan.add_option("-n,--ranks", request.ranks, "Size of the world; nothing is started")
      ->check(WholeNumberWithin(1, kMaxRanks))
      ->capture_default_str();
  CLI::Option* bytes = AddParsed(plan, "--bytes", request.bytes, ParseBytes, "BYTES", "1M", "Size of the call");
  plan.add_option("--count", request.count, "Elements, counted as in the call, in place of --bytes")
      ->check(WholeNumberWithin(0, std::int64_t{1} << 40))
      ->excludes(bytes);
  plan.add_option(
          "--step", request.step,
          "Optimizer step, counted from 0, in which a strategy exchanges; the plan may differ from step to step")
      ->check(WholeNumberWithin(0, std::int64_t{1} << 40))
      ->capture_default_str();
  plan.add_option("--rank", flags.rank, "The rank whose steps are printed")
      ->check(WholeNumberWithin(0, kMaxRanks - 1))
      ->capture_default_str();
  AddParsed(plan, "--dtype", request.traffic.dtype, ParseDType, "TYPE", "f32", NamesOfDTypes());
  AddParsed(plan, "--op", request.traffic.op, ParseReduceOp, "OP", "sum", NamesOfOps());
  plan.add_option("--root", request.traffic.root, "Root of broadcast, reduce, gather and scatter")
      ->check(WholeNumberWithin(0, kMaxRanks - 1))
      ->capture_default_str();
  plan.add_flag("--in-place,!--out-of-place", request.traffic.in_place,
                "One buffer, or one for input and one for output");
  CLI::Option* messages = plan.add_flag("--messages", flags.messages, "Send messages also where memory can be mapped");
  plan.add_flag("--mapped", flags.mapped, "Map the memory of peers on the same node (the default)")->excludes(messages);
  plan.add_flag(
      "--native", flags.native,
      "As if the buffers were on GPUs and NCCL performed whole collectives: schedules `native` serve, and are "
      "chosen by --native-latency and --native-bandwidth");
  AddParsed(plan, "--segment", request.options.segment_bytes, ParseBytes, "BYTES", "256K",
            "Longer ranges are cut into segments of this size");
  plan.add_flag("--cost", flags.cost,
                "Steps, bytes and time on a model machine; of a collective alone, for each schedule");
  plan.add_option("--ranks-per-node", flags.model.ranks_per_node, "How many ranks share a node; 0: all do")
      ->check(WholeNumberWithin(0, kMaxRanks))
      ->capture_default_str();
  plan.add_option(
          "--cores", flags.model.cores_per_node,
          "For the choice of a schedule and --cost: processors of a node, which the ranks of the node share; 0: every "
          "rank has a processor of its own")
      ->check(WholeNumberWithin(0, kMaxRanks))
      ->capture_default_str();
  AddLinks(plan, flags.model);
  plan.add_flag("--verify", flags.verify, "Prove that the plans of all ranks do together what the collective promises");
  AddParsed(
      plan, "--draw", flags.draw, ParsePictureFile, "FILE", "",
      "Draw the steps of all ranks into FILE.svg, .png or .pdf (needs Graphviz, for at most a minute), or FILE.dot");
}

}  // namespace

void AddPlan(CLI::App& app, Invocation& invocation) {
  CLI::App* plan = app.add_subcommand("plan", "Print, cost, draw and verify the steps of a schedule or an algorithm");
  auto flags = std::make_shared<PlanFlags>();
  AddFlags(*plan, *flags);
  plan->footer("Example: tutti plan all_reduce:ring --ranks 8 --bytes 1M --verify --draw ring.svg");
  plan->callback([plan, flags, &invocation] {
    flags->request.for_collectives = GivenAmong(*plan, {"--op", "--root", "--in-place"});
    invocation.action = [flags] { return ShowPlan(*flags); };
  });
}

}  // namespace tutti::cli
