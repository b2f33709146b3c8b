// tutti plan all_reduce:ring --ranks 8 --bytes 1M: prints, costs, draws and verifies the plans that a call would run.
#include "bindings/cli/command.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "bindings/cli/dtype_flag.h"
#include "bindings/cli/flags.h"
#include "bindings/cli/plan/cost.h"
#include "bindings/cli/plan/graph.h"
#include "bindings/cli/plan/json.h"
#include "bindings/cli/plan/picture.h"
#include "bindings/cli/plan/request.h"
#include "bindings/cli/sizes.h"
#include "bindings/cli/svg_shapes.h"
#include "bindings/cli/write_file.h"
#include "tutti/print.h"
#include "tutti/verify.h"

namespace tutti::cli {
namespace {

// A verification of the plans of so many ranks may take long enough that a user wonders what happens.
constexpr int kManyRanks = 256;
// A line says how far the check of a property has come, at most so often.
constexpr absl::Duration kBetweenNews = absl::Seconds(2);

struct PlanFlags {
  PlanRequest request;
  Rank rank = 0;
  bool mapped = false;  // the default, which --messages excludes
  bool messages = false;
  bool native = false;
  bool verify = false;
  bool cost = false;
  bool quiet = false;
  CostModel model = DefaultCostModel();
  std::string draw;
  std::string draw_steps;
  std::string json;
};

// The plans of all ranks, which are built when they are first asked for.
class AllPlans {
 public:
  explicit AllPlans(const PlanFamily& family) : family_(family) {}

  absl::StatusOr<absl::Span<const Plan>> Get() {
    if (plans_.empty()) {
      absl::StatusOr<std::vector<Plan>> all = BuildAll(family_);
      if (!all.ok()) return all.status();
      plans_ = *std::move(all);
    }
    return absl::MakeConstSpan(plans_);
  }

 private:
  const PlanFamily& family_;
  std::vector<Plan> plans_;
};

absl::Status CheckFiles(const PlanFlags& flags) {
  std::vector<NamedFile> files;
  for (const NamedFile& file : {NamedFile{"--draw", flags.draw}, NamedFile{"--draw-steps", flags.draw_steps},
                                NamedFile{"--json", flags.json}}) {
    if (file.path.empty() || file.path == "-") continue;
    for (const NamedFile& other : files) {
      if (absl::Status distinct = CheckDistinct(file, other); !distinct.ok()) return distinct;
    }
    if (absl::Status writable = CheckWritable(file.path); !writable.ok()) return writable;
    files.push_back(file);
  }
  return absl::OkStatus();
}

absl::Status VerifyAll(AllPlans& all, const PlanFlags& flags) {
  const absl::StatusOr<absl::Span<const Plan>> plans = all.Get();
  if (!plans.ok()) return plans.status();
  if (plans->size() < kManyRanks || flags.quiet) return Verify(*plans);
  std::string told;
  std::int64_t last_ns = 0;
  return Verify(*plans, [&](absl::string_view property, double part) {
    const std::int64_t now_ns = MonotonicNanos();
    if (property == told && now_ns - last_ns < absl::ToInt64Nanoseconds(kBetweenNews)) return;
    told = std::string(property);
    last_ns = now_ns;
    std::fprintf(stderr, "tutti: verifying the plans of %d ranks: %s, %.0f %%\n", static_cast<int>(plans->size()),
                 told.c_str(), part * 100);
  });
}

// The picture that --draw asks for; empty when it asks for none.
absl::StatusOr<std::string> DrawnTimeline(const PlanFlags& flags, const PlanFamily& family) {
  if (flags.draw.empty()) return std::string();
  absl::StatusOr<std::string> picture =
      PictureOf(flags.request, family, flags.model, flags.rank, /*caller_verifies=*/flags.verify);
  if (picture.ok()) return picture;
  return absl::Status(picture.status().code(), absl::StrCat("--draw ", flags.draw, ": ", picture.status().message()));
}

absl::Status CheckGraph(const PlanFlags& flags, AllPlans& all) {
  if (flags.draw_steps.empty()) return absl::OkStatus();
  const absl::StatusOr<absl::Span<const Plan>> plans = all.Get();
  return plans.ok() ? CheckDrawable(*plans, flags.draw_steps) : plans.status();
}

absl::StatusOr<PlanFamily> FamilyOf(PlanFlags& flags) {
  PlanOptions& options = flags.request.options;
  const int on_node = flags.model.ranks_per_node;
  const bool one_node = on_node == 0 || on_node >= flags.request.ranks;
  for (Rank rank = 0; rank < flags.request.ranks && !one_node; ++rank) options.nodes.push_back(rank / on_node);
  options.peers_mapped = !flags.messages;
  if (flags.native) options.native = CollectivesOfNccl();
  options.cost_model = std::make_shared<const CostModel>(flags.model);
  absl::StatusOr<PlanFamily> family = Resolve(flags.request);
  if (family.ok() && flags.rank >= family->ranks) {
    return absl::InvalidArgumentError(absl::StrCat("--rank ", flags.rank, " must be in 0…", family->ranks - 1));
  }
  return family;
}

absl::StatusOr<std::int64_t> ParseSegment(absl::string_view text) {
  absl::StatusOr<std::int64_t> bytes = ParseBytes(text);
  if (!bytes.ok() || *bytes >= kMinSegmentBytes) return bytes;
  return absl::InvalidArgumentError(absl::StrCat(text, " must be ", kMinSegmentBytes, " bytes or more"));
}

// Whether values of a plan pass through a codec or a type that is narrower than theirs.
bool Loses(const Plan& plan) {
  const auto narrow = [&plan](const Ref& ref) {
    return IsFloating(ref.dtype) && SizeOf(ref.dtype) < SizeOf(plan.spec.dtype);
  };
  return !plan.codecs.empty() || std::any_of(plan.refs.begin(), plan.refs.end(), narrow);
}

// Writes a picture by `draw`, if `file` names one, and says so on `text`.
absl::Status WritePicture(const PlanFlags& flags, const std::string& file, std::FILE* text,
                          absl::FunctionRef<absl::Status()> draw) {
  if (file.empty()) return absl::OkStatus();
  if (absl::Status written = draw(); !written.ok()) return written;
  if (!flags.quiet) std::fprintf(text, "drawn: %s\n", file.c_str());
  return absl::OkStatus();
}

absl::Status WriteSteps(const PlanFlags& flags, AllPlans& all, std::FILE* text) {
  return WritePicture(flags, flags.draw_steps, text, [&] { return DrawSteps(*all.Get(), flags.draw_steps); });
}

// Draws the steps, which can be done of wrong plans, too, and returns `fault`, which ends the command.
absl::Status DrawnWithSteps(absl::Status fault, const PlanFlags& flags, AllPlans& all, std::FILE* text) {
  const absl::Status drawn = WriteSteps(flags, all, text);
  if (!drawn.ok()) std::fprintf(stderr, "tutti: %s\n", std::string(drawn.message()).c_str());
  return fault;
}

// Whether the plans are right whose steps were drawn, where --verify has not proved that before.
absl::Status CheckDrawnSteps(const PlanFlags& flags, AllPlans& all) {
  if (flags.draw_steps.empty() || flags.verify) return absl::OkStatus();
  absl::Status right = Verify(*all.Get());
  if (right.ok()) return right;
  return absl::Status(right.code(),
                      absl::StrCat("the plan that ", flags.draw_steps, " shows is wrong: ", right.message()));
}

// The text takes much memory where a plan has many steps, so `make_json` is called only if the text is asked for.
absl::Status WriteJson(const PlanFlags& flags, absl::FunctionRef<std::string()> make_json) {
  if (flags.json.empty()) return absl::OkStatus();
  const std::string json = make_json();
  if (flags.json != "-") return WriteFile(flags.json, json);
  std::fputs(json.c_str(), stdout);
  return absl::OkStatus();
}

absl::StatusOr<int> ShowPlan(PlanFlags flags) {
  const absl::StatusOr<PlanFamily> family = FamilyOf(flags);
  if (!family.ok()) return family.status();
  const absl::StatusOr<Plan> plan = family->build(flags.rank);
  if (!plan.ok()) return plan.status();
  if (absl::Status writable = CheckFiles(flags); !writable.ok()) return writable;
  AllPlans all(*family);
  if (absl::Status drawable = CheckGraph(flags, all); !drawable.ok()) return drawable;
  const absl::StatusOr<std::string> timeline = DrawnTimeline(flags, *family);
  std::FILE* const text = flags.json == "-" ? stderr : stdout;
  if (absl::IsFailedPrecondition(timeline.status())) return DrawnWithSteps(timeline.status(), flags, all, text);
  if (!timeline.ok()) return timeline.status();

  const auto print = [&](const std::string& lines) { std::fputs(lines.c_str(), text); };
  if (!flags.quiet) {
    print(absl::StrCat(family->explanation, ToText(*plan)));
    print(absl::StrCat(plan->steps.size(), " steps, ", WireBytes(*plan), " bytes on the wire\n"));
  }
  std::vector<PlanCost> costs;
  if (flags.cost) {
    std::fflush(text);  // what follows may take long
    absl::StatusOr<std::vector<PlanCost>> found = CostsOf(flags.request, flags.model, [&](const std::string& spec) {
      if (family->ranks < kManyRanks || flags.quiet) return;
      std::fprintf(stderr, "tutti: reckoning the cost of %s on %d ranks\n", spec.c_str(), family->ranks);
    });
    if (!found.ok()) return found.status();
    costs = *std::move(found);
    print(CostTable(costs, flags.model));
  }
  if (flags.verify) {
    std::fflush(text);  // what follows may take long
    if (absl::Status verified = VerifyAll(all, flags); !verified.ok()) {
      return DrawnWithSteps(verified, flags, all, text);
    }
    const absl::Span<const Plan> plans = *all.Get();
    const bool loses = std::any_of(plans.begin(), plans.end(), Loses);
    print(absl::StrCat("verified: all ", family->ranks, " ranks end with exactly what the collective promises",
                       loses ? ", but for what codecs and casts lose" : "", "; no deadlock, no race\n"));
  }
  absl::Status written = WritePicture(flags, flags.draw, text, [&] { return WriteFile(flags.draw, *timeline); });
  if (written.ok()) written = WriteSteps(flags, all, text);
  if (written.ok()) written = WriteJson(flags, [&] { return JsonOf(*family, *plan, costs, flags.verify); });
  if (!written.ok()) return written;
  if (absl::Status right = CheckDrawnSteps(flags, all); !right.ok()) return right;
  return 0;
}

// The options --PREFIXlatency and --PREFIXbandwidth of `link`, a LinkModel or, with `native`, a NativeModel, whose
// bandwidth may be 0.
template <typename Link>
void AddLink(CLI::App& plan, const std::string& prefix, Link& link, const std::string& latency,
             const std::string& bandwidth, CLI::Option* native = nullptr) {
  const double least = native != nullptr ? 0 : 1;
  const std::string what_for = "For the choice of a schedule and --cost: ";
  CLI::Option* const options[] = {
      plan.add_option("--" + prefix + "latency", link.latency_s, what_for + "seconds that " + latency)
          ->check(NumberWithin(0, 1)),
      plan.add_option("--" + prefix + "bandwidth", link.bytes_per_s,
                      what_for + "bytes that " + bandwidth + " per second")
          ->check(NumberWithin(least, 1e15))};
  for (CLI::Option* const option : options) {
    option->capture_default_str();
    if (native != nullptr) option->needs(native);
  }
}

void AddLinks(CLI::App& plan, CostModel& model, CLI::Option* native) {
  const std::string message = "a message of no bytes is on its way ";
  const std::string collective = "a native collective of no bytes takes ";
  AddLink(plan, "", model.within_node, message + "inside a node", "a link inside a node carries");
  AddLink(plan, "node-", model.between_nodes, message + "between nodes", "a link between nodes carries");
  AddLink(plan, "native-", model.native_within_node, collective + "inside a node",
          "a rank moves in a native collective inside a node (0: not known)", native);
  AddLink(plan, "node-native-", model.native_between_nodes, collective + "between nodes",
          "a rank moves in a native collective between nodes (0: not known)", native);
}

void AddOutputs(CLI::App& plan, PlanFlags& flags) {
  AddParsed(
      plan, "--draw", flags.draw, ParseSvgFile, "FILE.svg", "",
      "Draw what every rank does when, by the time that --cost predicts; of a large world 16 ranks from --rank on");
  AddParsed(
      plan, "--draw-steps", flags.draw_steps, ParseGraphFile, "FILE", "",
      "Draw the steps of all ranks, and which step waits for which, into FILE.svg, .png or .pdf (needs Graphviz, for "
      "at most a minute), or FILE.dot");
  AddParsed(plan, "--json", flags.json, ParseFile, "FILE", "",
            "Also write the plan, and what --cost and --verify find, to this file; -: to standard output, and the text "
            "to standard error");
  plan.add_flag("-q,--quiet", flags.quiet, "Print no steps and no progress: only what --cost and --verify find");
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
  plan.add_option("--rank", flags.rank,
                  "The rank whose steps are printed, and with which --draw begins in a large world")
      ->check(WholeNumberWithin(0, kMaxRanks - 1))
      ->capture_default_str();
  AddParsed(plan, "--dtype", request.traffic.dtype, ParseDTypeFlag, "TYPE", "f32", NamesOfDTypes());
  AddParsed(plan, "--op", request.traffic.op, ParseReduceOp, "OP", "sum", NamesOfOps());
  plan.add_option("--root", request.traffic.root, "Root of broadcast, reduce, gather and scatter")
      ->check(WholeNumberWithin(0, kMaxRanks - 1))
      ->capture_default_str();
  plan.add_flag("--in-place,!--out-of-place", request.traffic.in_place,
                "One buffer, or one for input and one for output");
  CLI::Option* messages = plan.add_flag("--messages", flags.messages, "Send messages also where memory can be mapped");
  plan.add_flag("--mapped", flags.mapped, "Map the memory of peers on the same node (the default)")->excludes(messages);
  CLI::Option* const native = plan.add_flag(
      "--native", flags.native,
      "As if the buffers were on GPUs and NCCL performed whole collectives: schedules `native` serve, and are "
      "chosen by --native-latency and --native-bandwidth");
  AddParsed(plan, "--segment", request.options.segment_bytes, ParseSegment, "BYTES", "256K",
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
  AddLinks(plan, flags.model, native);
  plan.add_flag("--verify", flags.verify, "Prove that the plans of all ranks do together what the collective promises");
  AddOutputs(plan, flags);
}

}  // namespace

void AddPlan(CLI::App& app, Invocation& invocation) {
  CLI::App* plan = app.add_subcommand("plan", "Print, cost, draw and verify the steps of a schedule or an algorithm");
  auto flags = std::make_shared<PlanFlags>();
  AddFlags(*plan, *flags);
  plan->footer("Example: tutti plan all_reduce:ring --ranks 8 --bytes 1M --verify --draw ring.svg");
  plan->callback([plan, flags, &invocation] {
    PlanRequest& request = flags->request;
    request.for_collectives = GivenAmong(*plan, {"--op", "--root"});
    if (plan->count("--in-place") > 0) {  // counts --out-of-place, too
      request.for_collectives.emplace_back(request.traffic.in_place ? "--in-place" : "--out-of-place");
    }
    request.step_given = plan->count("--step") > 0;
    invocation.action = [flags] { return ShowPlan(*flags); };
  });
}

}  // namespace tutti::cli
