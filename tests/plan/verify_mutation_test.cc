// Tests the verifier: plans with one random change must be rejected.
//
// Changes that are not counted, because the changed plan does the same:
//   - a dependency that others imply is dropped or moved (the same steps stay ordered)
//   - the change leaves every field as it was (two steps with equal ranges swap them)
//   - a Wait is repeated; a sum becomes an average over one
// Changes that survive all the same (about 1 % of schedules', 3 % of algorithms' mutants), and why each is harmless:
//   drop_dep, move_dep      the builder lets a Signal follow every earlier step and every later step follow a Wait; the
//                           dependency is not needed where other signals order the accesses, or where none conflict
//   drop_step, shrink_step  a copy of bytes that already hold the value; a Wait whose signal another Wait implies; a
//                           message of a barrier that others imply
//   change_space            the step reads an equal value elsewhere (the input, not the copy of it in the output)
//   change_peer, _ordinal   another Wait implies the changed one, or it is at the end, where peers read scratch alone
//   change_kind             a Reduce of one source is a Copy
//   swap_refs_of_steps      two independent steps of one kind in another order
//   any change in barriers  the bytes of a barrier's messages mean nothing
// The dedicated faults of verify_test.cc are always rejected.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/harness/calls.h"
#include "tests/harness/native_machine.h"
#include "tests/harness/sweeps.h"
#include "tutti/algorithm.h"
#include "tutti/print.h"
#include "tutti/schedule.h"
#include "tutti/verify.h"

namespace tutti {
namespace {

using Random = std::mt19937;

std::size_t Pick(std::size_t n, Random& random) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); }

Step& AnyStep(Plan& plan, Random& random) { return plan.steps[Pick(plan.steps.size(), random)]; }

// A random step for which `fits` holds, or null.
template <typename Fits>
Step* FindStep(Plan& plan, Random& random, Fits fits) {
  const std::size_t first = Pick(plan.steps.size(), random);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    Step& step = plan.steps[(first + i) % plan.steps.size()];
    if (fits(step)) return &step;
  }
  return nullptr;
}

Ref* AnyRef(Plan& plan, Random& random) {
  return plan.refs.empty() ? nullptr : &plan.refs[Pick(plan.refs.size(), random)];
}

bool Computes(const Step& step) { return step.num_dsts > 0 && step.num_srcs > 0; }

// Rebuilds the pool of dependencies from one list per step.
void SetDeps(Plan& plan, const std::vector<std::vector<StepId>>& deps) {
  plan.deps.clear();
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    plan.steps[i].first_dep = static_cast<std::uint32_t>(plan.deps.size());
    plan.steps[i].num_deps = static_cast<std::uint32_t>(deps[i].size());
    plan.deps.insert(plan.deps.end(), deps[i].begin(), deps[i].end());
  }
}

std::vector<std::vector<StepId>> DepsOf(const Plan& plan) {
  std::vector<std::vector<StepId>> deps;
  for (const Step& step : plan.steps) deps.emplace_back(plan.deps_of(step).begin(), plan.deps_of(step).end());
  return deps;
}

std::vector<std::vector<bool>> Closure(const Plan& plan) {
  const std::size_t n = plan.steps.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n, false));
  for (std::size_t i = 0; i < n; ++i) {
    for (StepId dep : plan.deps_of(plan.steps[i])) {
      before[i][dep] = true;
      for (std::size_t k = 0; k < dep; ++k) before[i][k] = before[i][k] || before[dep][k];
    }
  }
  return before;
}

// Drops a step; the steps that depended on it then depend on what it depended on.
bool DropStep(Plan& plan, Random& random) {
  const std::size_t dropped = Pick(plan.steps.size(), random);
  std::vector<std::vector<StepId>> deps = DepsOf(plan);
  const std::vector<StepId> inherited = deps[dropped];
  deps.erase(deps.begin() + static_cast<std::ptrdiff_t>(dropped));
  plan.steps.erase(plan.steps.begin() + static_cast<std::ptrdiff_t>(dropped));
  for (std::vector<StepId>& list : deps) {
    const auto found = std::find(list.begin(), list.end(), dropped);
    if (found != list.end()) {
      list.erase(found);
      list.insert(list.end(), inherited.begin(), inherited.end());
    }
    for (StepId& dep : list) dep -= dep > dropped;
  }
  SetDeps(plan, deps);
  return true;
}

bool DuplicateStep(Plan& plan, Random& random) {
  const Step* step = FindStep(plan, random, [](const Step& s) { return s.kind != StepKind::kWait; });
  if (step == nullptr) return false;
  const auto at = static_cast<std::size_t>(step - plan.steps.data());
  std::vector<std::vector<StepId>> deps = DepsOf(plan);
  for (std::vector<StepId>& list : deps) {
    for (StepId& dep : list) dep += dep >= at;  // steps that depended on the step depend on the copy
  }
  deps.insert(deps.begin() + static_cast<std::ptrdiff_t>(at) + 1, {static_cast<StepId>(at)});
  plan.steps.insert(plan.steps.begin() + static_cast<std::ptrdiff_t>(at), Step(*step));
  SetDeps(plan, deps);
  return true;
}

bool DropDep(Plan& plan, Random& random) {
  const Step* step = FindStep(plan, random, [](const Step& s) { return s.num_deps > 0; });
  if (step == nullptr) return false;
  std::vector<std::vector<StepId>> deps = DepsOf(plan);
  std::vector<StepId>& list = deps[static_cast<std::size_t>(step - plan.steps.data())];
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(Pick(list.size(), random)));
  SetDeps(plan, deps);
  return true;
}

bool MoveDep(Plan& plan, Random& random) {
  if (plan.deps.empty()) return false;
  plan.deps[Pick(plan.deps.size(), random)] = static_cast<StepId>(Pick(plan.steps.size(), random));
  return true;
}

bool ChangePeer(Plan& plan, Random& random) {
  Step* step = FindStep(plan, random, [](const Step& s) { return s.peer != kSelf; });
  if (step == nullptr) return false;
  step->peer = static_cast<Rank>(Pick(plan.size, random));
  return true;
}

bool ChangeOrdinal(Plan& plan, Random& random) {
  Step* step = FindStep(plan, random, [](const Step& s) { return !Computes(s); });
  if (step == nullptr) return false;
  step->ordinal += random() % 2 == 0 ? 1 : -1;
  return true;
}

bool ShiftRef(Plan& plan, Random& random) {
  Ref* ref = AnyRef(plan, random);
  if (ref == nullptr) return false;
  ref->offset += random() % 2 == 0 ? SizeOf(ref->dtype) : -SizeOf(ref->dtype);
  return true;
}

bool ShiftStep(Plan& plan, Random& random) {
  Step& step = AnyStep(plan, random);
  for (std::uint32_t i = 0; i < step.num_dsts + step.num_srcs; ++i) {
    Ref& ref = plan.refs[step.first_ref + i];
    ref.offset += SizeOf(ref.dtype);
  }
  return step.num_dsts + step.num_srcs > 0;
}

bool ResizeRef(Plan& plan, Random& random) {
  Ref* ref = AnyRef(plan, random);
  if (ref == nullptr) return false;
  ref->bytes += random() % 2 == 0 ? SizeOf(ref->dtype) : -SizeOf(ref->dtype);
  return true;
}

bool ShrinkStep(Plan& plan, Random& random) {
  Step& step = AnyStep(plan, random);
  for (std::uint32_t i = 0; i < step.num_dsts + step.num_srcs; ++i) {
    Ref& ref = plan.refs[step.first_ref + i];
    ref.bytes -= SizeOf(ref.dtype);
  }
  return step.num_dsts + step.num_srcs > 0;
}

bool SwapSides(Plan& plan, Random& random) {
  const Step* step = FindStep(plan, random, Computes);
  if (step == nullptr) return false;
  std::swap(plan.refs[step->first_ref + Pick(step->num_dsts, random)],
            plan.refs[step->first_ref + step->num_dsts + Pick(step->num_srcs, random)]);
  return true;
}

bool SwapRefsOfSteps(Plan& plan, Random& random) {
  Step& a = AnyStep(plan, random);
  Step& b = AnyStep(plan, random);
  if (a.num_dsts != b.num_dsts || a.num_srcs != b.num_srcs) return false;
  std::swap(a.first_ref, b.first_ref);
  return true;
}

bool ChangeSpace(Plan& plan, Random& random) {
  Ref* ref = AnyRef(plan, random);
  if (ref == nullptr) return false;
  ref->space = static_cast<Space>(Pick(4, random));
  return true;
}

bool ChangeOwner(Plan& plan, Random& random) {
  Ref* ref = AnyRef(plan, random);
  if (ref == nullptr) return false;
  ref->owner = static_cast<Rank>(Pick(plan.size + 1, random)) - 1;
  return true;
}

bool ChangeType(Plan& plan, Random& random) {
  Ref* ref = AnyRef(plan, random);
  if (ref == nullptr) return false;
  ref->dtype = kAllDTypes[Pick(kAllDTypes.size(), random)];
  return true;
}

bool ChangeOp(Plan& plan, Random& random) {
  Step* step = FindStep(plan, random, [](const Step& s) { return s.kind == StepKind::kReduce && s.num_srcs > 1; });
  if (step == nullptr) return false;
  const ReduceOp old = step->op;
  step->op = kAllReduceOps[Pick(kAllReduceOps.size(), random)];
  auto sums = [](ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kAvg; };
  return step->divisor != 1 || !sums(old) || !sums(step->op);
}

bool ChangeDivisor(Plan& plan, Random& random) {
  Step& step = AnyStep(plan, random);
  step.divisor += random() % 2 == 0 ? 1 : -1;
  return true;
}

bool FlipAccumulate(Plan& plan, Random& random) {
  Step& step = AnyStep(plan, random);
  step.accumulate = !step.accumulate;
  return true;
}

bool ChangeCoefficient(Plan& plan, Random& random) {
  if (plan.coefficients.empty()) return false;
  plan.coefficients[Pick(plan.coefficients.size(), random)].factor *= 1.5;
  return true;
}

bool FlipFinite(Plan& plan, Random& random) {
  Step* step = FindStep(plan, random, [](const Step& s) { return s.kind == StepKind::kCombine; });
  if (step == nullptr) return false;
  step->finite = !step->finite;
  return true;
}

bool FlipByFactor(Plan& plan, Random& random) {
  Step* step = FindStep(plan, random, [](const Step& s) { return s.kind == StepKind::kScale; });
  if (step == nullptr) return false;
  step->by_factor = !step->by_factor;
  return true;
}

bool ChangeKind(Plan& plan, Random& random) {
  AnyStep(plan, random).kind = static_cast<StepKind>(Pick(11, random));
  return true;
}

bool ChangeCollective(Plan& plan, Random& random) {
  Step* step = FindStep(plan, random, [](const Step& s) { return s.kind == StepKind::kNative; });
  if (step == nullptr) return false;
  step->collective = kAllCollectives[Pick(kAllCollectives.size(), random)];
  return true;
}

bool ChangeGroup(Plan& plan, Random& random) {
  Step* step = FindStep(plan, random, [](const Step& s) { return s.kind == StepKind::kNative; });
  if (step == nullptr) return false;
  std::vector<Rank> group;
  for (Rank rank = 0; rank < plan.size; ++rank) {
    if (rank == plan.rank || Pick(2, random) == 0) group.push_back(rank);
  }
  plan.groups.push_back(group);
  step->group = static_cast<std::uint16_t>(plan.groups.size());
  return true;
}

bool DropSource(Plan& plan, Random& random) {
  Step* step = FindStep(plan, random, [](const Step& s) { return s.num_srcs > 1; });
  if (step == nullptr) return false;
  --step->num_srcs;
  return true;
}

bool RepeatSource(Plan& plan, Random& random) {
  const Step* step = FindStep(plan, random, [](const Step& s) { return s.num_srcs > 1; });
  if (step == nullptr) return false;
  const std::size_t first = step->first_ref + step->num_dsts;
  plan.refs[first + Pick(step->num_srcs, random)] = plan.refs[first + Pick(step->num_srcs, random)];
  return true;
}

// Drops a term of a sum, with its coefficient.
bool DropTerm(Plan& plan, Random& random) {
  Step* step = FindStep(plan, random, [](const Step& s) { return s.kind == StepKind::kCombine && s.num_srcs > 1; });
  if (step == nullptr) return false;
  const std::size_t dropped = Pick(step->num_srcs, random);
  for (std::size_t i = dropped; i + 1 < step->num_srcs; ++i) {
    const std::size_t first = step->first_ref + step->num_dsts;
    plan.refs[first + i] = plan.refs[first + i + 1];
    plan.coefficients[step->first_coefficient + i] = plan.coefficients[step->first_coefficient + i + 1];
  }
  --step->num_srcs;
  return true;
}

// Changes what a plan says of its state.
bool ChangeState(Plan& plan, Random& random) {
  if (plan.states.empty()) return false;
  StateRange& state = plan.states[Pick(plan.states.size(), random)];
  if (state.range.bytes == 0) return false;  // the state of a rank whose chunk is empty
  switch (Pick(6, random)) {
    case 0:
      state.first_element += random() % 2 == 0 ? 1 : -1;
      break;
    case 1:
      state.divisor += random() % 2 == 0 ? 1 : -1;
      break;
    case 2:
      state.of = static_cast<Rank>(Pick(plan.size + 1, random)) - 1;
      break;
    case 3:
      state.range.dtype = static_cast<DType>(Pick(256, random));
      break;
    case 4:
      state.range.offset += random() % 2 == 0 ? 1 : -1;
      break;
    default:
      state.kind = state.kind == StateKind::kResidual ? StateKind::kReplica : StateKind::kResidual;
  }
  return true;
}

bool ChangeMixing(Plan& plan, Random& random) {
  if (plan.mixing.empty()) return false;
  std::swap(plan.mixing[Pick(plan.mixing.size(), random)], plan.mixing[Pick(plan.mixing.size(), random)]);
  return true;
}

struct Mutation {
  const char* name;
  bool (*apply)(Plan& plan, Random& random);  // returns false when it found nothing to change
};

constexpr std::array<Mutation, 29> kMutations = {{{"drop_step", DropStep},
                                                  {"duplicate_step", DuplicateStep},
                                                  {"drop_dep", DropDep},
                                                  {"move_dep", MoveDep},
                                                  {"change_peer", ChangePeer},
                                                  {"change_ordinal", ChangeOrdinal},
                                                  {"shift_ref", ShiftRef},
                                                  {"shift_step", ShiftStep},
                                                  {"resize_ref", ResizeRef},
                                                  {"shrink_step", ShrinkStep},
                                                  {"swap_sides", SwapSides},
                                                  {"swap_refs_of_steps", SwapRefsOfSteps},
                                                  {"change_space", ChangeSpace},
                                                  {"change_owner", ChangeOwner},
                                                  {"change_type", ChangeType},
                                                  {"change_op", ChangeOp},
                                                  {"change_divisor", ChangeDivisor},
                                                  {"flip_accumulate", FlipAccumulate},
                                                  {"change_kind", ChangeKind},
                                                  {"drop_source", DropSource},
                                                  {"repeat_source", RepeatSource},
                                                  {"change_coefficient", ChangeCoefficient},
                                                  {"flip_finite", FlipFinite},
                                                  {"flip_by_factor", FlipByFactor},
                                                  {"change_collective", ChangeCollective},
                                                  {"change_group", ChangeGroup},
                                                  {"drop_term", DropTerm},
                                                  {"change_state", ChangeState},
                                                  {"change_mixing", ChangeMixing}}};

// Compares texts, which show the whole plan except the places of lists in their pools.
bool SamePlan(const Plan& a, const Plan& b) {
  if (a.states != b.states || a.mixing != b.mixing) return false;
  if (ToText(a) == ToText(b) &&
      std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(), [](const Step& x, const Step& y) {
        return x.divisor == y.divisor && x.accumulate == y.accumulate && x.by_factor == y.by_factor;
      })) {
    return true;
  }
  Plan without_deps = b;
  SetDeps(without_deps, DepsOf(a).size() == b.steps.size() ? DepsOf(a) : DepsOf(b));
  const bool valid = std::all_of(b.steps.begin(), b.steps.end(), [&](const Step& step) {
    const auto id = static_cast<StepId>(&step - b.steps.data());
    return std::all_of(b.deps_of(step).begin(), b.deps_of(step).end(), [id](StepId dep) { return dep < id; });
  });
  return valid && ToText(without_deps) == ToText(a) && without_deps.deps != b.deps && Closure(a) == Closure(b);
}

struct Tally {
  int tried = 0;
  int rejected = 0;
};

// The mutations that Verify rejects in fewer cases than kMinRejected, because many mutants still do the same as the
// unchanged plan. Of every other mutation at least kMinRejected of the mutants are rejected; the survivors are
// barriers, whose values nobody reads, and plans with codecs.
struct Survivors {
  absl::string_view mutation;
  double least_rejected;
  absl::string_view why;
};
constexpr double kMinRejected = 0.97;
constexpr Survivors kSurvivors[] = {
    {"drop_dep", 0.58, "another chain of dependencies, signals or messages orders the same two steps"},
    {"move_dep", 0.70, "as drop_dep: the step that is waited for instead comes later, or the old order holds anyway"},
    {"change_peer", 0.70, "a wait for a rank that all have met already, and of two waits one was enough"},
    {"drop_step", 0.75, "a wait or a signal in a meeting of all ranks where the root alone had to be met"},
    {"change_ordinal", 0.85, "a wait for an earlier or later signal of the same meeting, with nothing between the two"},
    {"swap_refs_of_steps", 0.74, "the two steps were equal but for their place, or are waits, which have no operands"},
    {"change_kind", 0.94, "a reduction of one source is a copy, and a scale by one as well"},
};

class MutationTest : public ::testing::Test {
 protected:
  void Try(const std::vector<Plan>& plans, int times) {
    ASSERT_TRUE(Verify(plans).ok()) << plans[0].name << ": " << Verify(plans);
    for (const Mutation& mutation : kMutations) {
      for (int i = 0; i < times; ++i) {
        std::vector<Plan> mutants = plans;
        Plan& plan = mutants[Pick(mutants.size(), random_)];
        if (plan.steps.empty()) continue;
        const Plan before = plan;
        if (!mutation.apply(plan, random_) || SamePlan(before, plan)) continue;
        Tally& tally = tallies_[mutation.name];
        ++tally.tried;
        if (!Verify(mutants).ok()) {
          ++tally.rejected;
        } else {
          ++survivors_[absl::StrCat(mutation.name, " in ", plan.name)];
          if (examples_.size() < 6)
            examples_.push_back(absl::StrCat(mutation.name, "\nbefore ", ToText(before), "after ", ToText(plan)));
        }
      }
    }
  }

  // `without`: the mutations that find nothing to change in the plans of the test. Every other one must have been
  // tried.
  void ExpectRejected(const std::set<std::string>& without) {
    for (const Mutation& mutation : kMutations) {
      EXPECT_EQ(tallies_.contains(mutation.name), !without.contains(mutation.name)) << mutation.name;
    }
    std::string report;
    for (const auto& [name, tally] : tallies_) {
      absl::StrAppend(&report, name, ": ", tally.rejected, " of ", tally.tried, "\n");
    }
    for (const auto& [what, n] : survivors_) absl::StrAppend(&report, "survived: ", what, ": ", n, "\n");
    for (const std::string& example : examples_) absl::StrAppend(&report, example, "\n");
    for (const auto& [name, tally] : tallies_) {
      Survivors expected = {.mutation = name, .least_rejected = kMinRejected, .why = "barriers and codecs"};
      for (const Survivors& survivors : kSurvivors) {
        if (name == survivors.mutation) expected = survivors;
      }
      EXPECT_GE(tally.rejected, expected.least_rejected * tally.tried)
          << name << ", of which mutants are known to survive (" << expected.why << ")\n"
          << report;
    }
  }

  Random random_{20240607};
  std::map<std::string, Tally> tallies_;
  std::map<std::string, int> survivors_;
  std::vector<std::string> examples_;
};

TEST_F(MutationTest, OfEverySchedule) {
  for (const Schedule* schedule : AllSchedules()) {
    for (int size : SweptWorlds({2, 3, 4, 6})) {
      for (const auto& [dtype, op] : {std::pair{DType::kF32, ReduceOp::kAvg},
                                      {DType::kBF16, ReduceOp::kAvg},
                                      {DType::kF32, ReduceOp::kPremulSum},
                                      {DType::kI32, ReduceOp::kBitwiseXor},
                                      {DType::kBool, ReduceOp::kSum}}) {
        if (op != ReduceOp::kAvg && !Reduces(schedule->collective)) continue;
        for (const WorldCall& call : CallsOf(schedule->collective, dtype, op, 13, size)) {
          for (const std::vector<int>& nodes : NodesFor(*schedule, size)) {
            const PlanOptions options = WithNative({.segment_bytes = 32, .peers_mapped = true, .nodes = nodes});
            const absl::StatusOr<std::vector<Plan>> plans = PlansOf(*schedule, call, size, options);
            if (absl::IsUnimplemented(plans.status())) continue;
            ASSERT_TRUE(plans.ok()) << plans.status();
            Try(*plans, 1);
          }
        }
      }
    }
  }
  ExpectRejected({"change_coefficient", "flip_finite", "drop_term", "change_state", "change_mixing"});
}

// Nodes of two ranks, inside which everything is native.
TEST_F(MutationTest, OfAlgorithmsThatAreNativeInsideNodes) {
  for (const char* name : {"gradient_allreduce:hierarchical=true", "bytegrad", "decentralized", "async"}) {
    for (const std::vector<int>& nodes : {std::vector<int>{0, 0, 1, 1}, {0, 1, 1, 0, 2, 2}}) {
      const PlanOptions options = WithNative({.nodes = nodes}, kFastNative, kSlowNative);
      std::vector<Plan> plans;
      for (Rank rank = 0; rank < static_cast<Rank>(nodes.size()); ++rank) {
        plans.push_back(
            *BuildPlan(*ParseStrategy(name), DType::kF32, 4099, rank, static_cast<int>(nodes.size()), options));
      }
      Try(plans, 20);
    }
  }
  ExpectRejected({"change_coefficient", "flip_finite", "drop_term", "change_state", "change_mixing"});
}

TEST_F(MutationTest, OfEveryAlgorithm) {
  std::vector<std::string> names = {"bytegrad:error_feedback=true", "decentralized:peer_selection_mode=shift_one",
                                    "decentralized:peer_selection_mode=ring",
                                    "decentralized:matrix=0.5 0.25 0.25/0.25 0.5 0.25/0.25 0.25 0.5"};
  for (const Algorithm* algorithm : AllAlgorithms()) names.emplace_back(algorithm->name);
  for (const std::string& name : names) {
    const Strategy strategy = *ParseStrategy(name);
    for (int size : {2, 3, 4}) {
      for (int round = 0; round < RoundsOf(strategy, size); ++round) {
        for (bool mapped : {false, true}) {
          std::vector<Plan> plans;
          for (Rank rank = 0; rank < size; ++rank) {
            absl::StatusOr<Plan> plan =
                BuildPlan(strategy, DType::kF32, 4099, rank, size, {.peers_mapped = mapped}, round);
            if (absl::IsInvalidArgument(plan.status())) break;  // the strategy's matrix is for another number of ranks
            ASSERT_TRUE(plan.ok()) << plan.status();
            plans.push_back(*std::move(plan));
          }
          if (!plans.empty()) Try(plans, 5);
        }
      }
    }
  }
  ExpectRejected({"change_collective", "change_group"});
}

}  // namespace
}  // namespace tutti
