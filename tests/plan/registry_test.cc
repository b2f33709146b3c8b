#include "plan/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tutti/version.h"

namespace tutti::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

void BuildNothing(PlanBuilder& /*builder*/) {}

Schedule AllGather(absl::string_view name) {
  return {.collective = Collective::kAllGather,
          .name = name,
          .summary = "",
          .cost = "",
          .supports = SupportsAll,
          .build = BuildNothing};
}

// The status of registering `schedules` as the extension "mine" of this version.
absl::Status Register(Registry& registry, std::vector<const Schedule*> schedules) {
  return registry.Register({.name = "mine", .tutti_version = Version(), .schedules = schedules});
}

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("extension mine: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

template <class Record>
std::vector<std::string> NamesOf(absl::Span<const Record* const> records) {
  std::vector<std::string> names;
  for (const Record* record : records) names.push_back(FullName(*record));
  return names;
}

TEST(RegistryTest, OwnRecordsAreInTheOrderOfTheirNames) {
  const Registry registry;
  for (const auto& names : {NamesOf(registry.schedules.all()), NamesOf(registry.codecs.all()),
                            NamesOf(registry.algorithms.all()), NamesOf(registry.peer_selections.all())}) {
    EXPECT_GE(names.size(), 6U);
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end())) << ::testing::PrintToString(names);
  }
  EXPECT_EQ(registry.names(), "");
}

TEST(RegistryTest, RecordsAreAddedInOrderAndListsThatWereReadStayAsTheyWere) {
  Registry registry;
  const absl::Span<const Schedule* const> before = registry.schedules.all();
  const std::vector<std::string> names_before = NamesOf(before);
  const Schedule first = AllGather("aardvark"), last = AllGather("zebra"), alone = AllGather("mine");
  ASSERT_EQ(Register(registry, {&last, &first}), absl::OkStatus());
  ASSERT_EQ(Register(registry, {&alone}), absl::OkStatus());
  EXPECT_EQ(NamesOf(before), names_before);
  const std::vector<std::string> names = NamesOf(registry.schedules.all());
  EXPECT_EQ(names.size(), names_before.size() + 3);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_THAT(names, IsSupersetOf({"all_gather:aardvark", "all_gather:mine", "all_gather:zebra"}));
  EXPECT_EQ(registry.names(), "schedule all_gather:aardvark, schedule all_gather:mine, schedule all_gather:zebra");
}

TEST(RegistryTest, RecordsOfEachKindAreAdded) {
  Registry registry;
  Codec codec = *registry.codecs.all()[0];
  Algorithm algorithm = *registry.algorithms.all()[0];
  PeerSelection selection = *registry.peer_selections.all()[0];
  codec.name = algorithm.name = selection.name = "mine";
  const std::vector<const Codec*> codecs = {&codec};
  const std::vector<const Algorithm*> algorithms = {&algorithm};
  const std::vector<const PeerSelection*> selections = {&selection};
  ASSERT_EQ(registry.Register({.name = "mine",
                               .tutti_version = Version(),
                               .codecs = codecs,
                               .algorithms = algorithms,
                               .peer_selections = selections}),
            absl::OkStatus());
  EXPECT_EQ(registry.names(), "algorithm mine, codec mine, peer selection mine");
  for (const auto& names :
       {NamesOf(registry.codecs.all()), NamesOf(registry.algorithms.all()), NamesOf(registry.peer_selections.all())}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), "mine"), 1);
  }
}

TEST(RegistryTest, AnExtensionIsAddedWholeOrNotAtAll) {
  Registry registry;
  const std::size_t before = registry.schedules.all().size();
  const Schedule mine = AllGather("mine"), ring = AllGather("ring");
  ExpectError(Register(registry, {&mine, &ring}), absl::StatusCode::kAlreadyExists,
              "there is a schedule all_gather:ring already; give this one another name");
  ExpectError(Register(registry, {&mine, &mine}), absl::StatusCode::kAlreadyExists,
              "there is a schedule all_gather:mine already");
  EXPECT_EQ(registry.schedules.all().size(), before);
  EXPECT_EQ(registry.names(), "");
}

TEST(RegistryTest, AScheduleOfAnotherCollectiveMayHaveTheName) {
  Registry registry;
  Schedule ring = AllGather("ring");
  ring.collective = Collective::kScatter;
  EXPECT_EQ(Register(registry, {&ring}), absl::OkStatus());
}

TEST(RegistryTest, WrongRecordsAreRefused) {
  Registry registry;
  for (const absl::string_view name : {"", "Mine", "my ring", "2nd", "a:b", "mine,"}) {
    const Schedule wrong = AllGather(name);
    ExpectError(Register(registry, {&wrong}), absl::StatusCode::kInvalidArgument,
                absl::StrCat("the schedule named '", name, "' needs a name of lower-case letters, digits and _"));
  }
  Schedule incomplete = AllGather("mine");
  incomplete.build = nullptr;
  ExpectError(Register(registry, {&incomplete}), absl::StatusCode::kInvalidArgument,
              "the record of schedule all_gather:mine lacks a function; it must have: supports, build");
  Codec unbounded = *registry.codecs.all()[0];
  unbounded.name = "mine";
  unbounded.largest_error = nullptr;
  const std::vector<const Codec*> codecs = {&unbounded};
  ExpectError(registry.Register({.name = "mine", .tutti_version = Version(), .codecs = codecs}),
              absl::StatusCode::kInvalidArgument,
              "the record of codec mine lacks a function; it must have: largest_error, validate, encoded_bytes, "
              "encode, decode");
  ExpectError(Register(registry, {}), absl::StatusCode::kInvalidArgument,
              "it has no schedule, codec, algorithm or peer selection");
}

constexpr AlgorithmOption kInterval[] = {{"interval", "4", "1, 2, …", "", CheckPositive}};

// A right algorithm, which averages weights now and then.
Algorithm Averaging() {
  return {.name = "mine",
          .summary = "",
          .cost = "",
          .exchanges = Exchanges::kWeights,
          .phase = Phase::kAfterStep,
          .options = kInterval,
          .round_of = [](const Strategy&, int) -> RoundOfStep { return [](std::int64_t) { return 0; }; },
          .supports = [](const Strategy&, const CollectiveSpec&, int, const PlanOptions&) { return absl::OkStatus(); },
          .build = [](const Strategy&, int, PlanBuilder&) {}};
}

absl::Status Register(Registry& registry, const Algorithm& algorithm) {
  const Algorithm* const records[] = {&algorithm};
  return registry.Register({.name = "mine", .tutti_version = Version(), .algorithms = records});
}

TEST(RegistryTest, RecordsOfAlgorithmsThatBreakTheirContractAreRefused) {
  struct Row {
    std::function<void(Algorithm&)> change;
    const char* error;
  };
  constexpr auto kNoRounds = [](const Strategy&) { return BackgroundRounds(); };
  static constexpr AlgorithmOption kUnchecked[] = {{"interval", "4", "", "", nullptr}};
  static constexpr AlgorithmOption kTwice[] = {kInterval[0], kInterval[0]};
  static constexpr AlgorithmOption kOfCodecs[] = {{"block", "4", "", "", CheckPositive}};
  static constexpr AlgorithmOption kUnnameable[] = {{"a=b", "4", "", "", CheckPositive}};
  const std::vector<Row> rows = {
      {[](Algorithm& a) { a.phase = Phase::kBackward; },
       "exchanges weights do not go with phase backward; valid: gradients: backward, momentum: backward, weights: "},
      {[](Algorithm& a) { a.exchanges = Exchanges::kGradients; },
       "exchanges gradients do not go with phase after the step; valid: gradients: backward, "},
      {[](Algorithm& a) { a.phase = Phase::kBackground; },
       "field background is missing; it must be there with phase background, and only there"},
      {[=](Algorithm& a) { a.background = kNoRounds; },
       "field background is given; it must be there with phase background, and only there"},
      {[](Algorithm& a) {
         a.exchanges = Exchanges::kMomentum;
         a.phase = Phase::kBackward;
       },
       "field optimizer is missing; it must be there with exchanges momentum, and only there"},
      {[](Algorithm& a) { a.optimizer = "SGD"; }, "field optimizer is given; "},
      {[](Algorithm& a) {
         a.exchanges = Exchanges::kGradients;
         a.phase = Phase::kBackward;
       },
       "field round_of is given; with exchanges gradients there is one round, which always runs: leave the field out"},
      {[=](Algorithm& a) {
         a.phase = Phase::kBackground;
         a.background = kNoRounds;
         a.rounds = [](const Strategy&, int) { return 2; };
       },
       "field rounds is given; with phase background there is one round"},
      {[](Algorithm& a) { a.options = kUnchecked; }, "options[0] interval has no check; CheckListed and "},
      {[](Algorithm& a) { a.options = kTwice; }, "options[1] is named interval, as another option or one of codecs"},
      {[](Algorithm& a) { a.options = kUnnameable; }, "options[0] is named 'a=b'; a name has lower-case letters"},
      {[](Algorithm& a) {
         a.options = kOfCodecs;
         a.codec = "bf16";
       },
       "options[0] is named block, as another option or one of codecs; give it another name"},
  };
  Registry registry;
  for (const Row& row : rows) {
    Algorithm algorithm = Averaging();
    row.change(algorithm);
    ExpectError(Register(registry, algorithm), absl::StatusCode::kInvalidArgument,
                absl::StrCat("the record of algorithm mine: ", row.error));
  }
  const Algorithm right = Averaging();
  EXPECT_EQ(Register(registry, right), absl::OkStatus());
}

TEST(RegistryTest, RecordsOfTuttisOwnAlgorithmsKeepTheirContract) {
  for (const Algorithm* own : OwnAlgorithms()) {
    Registry registry;
    Algorithm copy = *own;
    copy.name = "mine";
    EXPECT_EQ(Register(registry, copy), absl::OkStatus()) << own->name;
  }
}

TEST(RegistryTest, AnotherVersionIsRefused) {
  Registry registry;
  const Schedule mine = AllGather("mine");
  const std::vector<const Schedule*> schedules = {&mine};
  ExpectError(registry.Register({.name = "mine", .tutti_version = "0.0.1", .schedules = schedules}),
              absl::StatusCode::kFailedPrecondition, "it was built with Tutti 0.0.1, and this is Tutti ");
}

TEST(RegistryTest, NothingIsAddedAfterTheFirstCommunicator) {
  Registry registry;
  ASSERT_EQ(registry.Seal(), absl::OkStatus());
  const Schedule mine = AllGather("mine");
  ExpectError(Register(registry, {&mine}), absl::StatusCode::kFailedPrecondition,
              "this process has made a communicator already");
}

TEST(RegistryTest, TheFirstErrorIsKept) {
  Registry registry;
  registry.Refuse(absl::OkStatus());
  EXPECT_EQ(registry.status(), absl::OkStatus());
  registry.Refuse(absl::NotFoundError("first"));
  registry.Refuse(absl::InternalError("second"));
  EXPECT_EQ(registry.status(), absl::NotFoundError("first"));
  EXPECT_EQ(registry.Seal(), absl::NotFoundError("first"));
}

}  // namespace
}  // namespace tutti::internal
