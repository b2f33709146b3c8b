// decentralized, trained for up to 50 steps with every peer selection, against a loop over all ranks.
#include "absl/strings/str_cat.h"
#include "tests/algorithms/references/comparison.h"
#include "tests/algorithms/references/decentralized.h"
#include "tutti/peer_selection.h"

namespace tutti {
namespace {

MakeReference Decentralized(const std::string& selection, int interval = 1, std::uint64_t seed = 0) {
  return [=](const Floats&) { return std::make_unique<DecentralizedReference>(selection, interval, seed); };
}

class DecentralizedTraining : public ::testing::TestWithParam<const PeerSelection*> {
 protected:
  std::string selection() const { return std::string(GetParam()->name); }
  Training Of(int size, const std::string& options = "") const {
    return RandomTraining(absl::StrCat("decentralized:peer_selection_mode=", selection(), options), size, kSteps);
  }
};

TEST_P(DecentralizedTraining, EqualsItsReferenceToTheBit) {
  for (const int size : WorldSizes()) ExpectTrainsAs(Of(size), Decentralized(selection()));
}

TEST_P(DecentralizedTraining, ExchangesOnlyEveryThirdStepWhenToldSo) {
  for (const int size : SweptWorlds({3, 4, 5, 8})) {
    ExpectTrainsAs(Of(size, ",communication_interval=3,seed=11"), Decentralized(selection(), 3, 11));
  }
}

TEST_P(DecentralizedTraining, OverMessagesToo) {
  for (const int size : WorldSizes()) {
    Training training = Of(size);
    training.world = Messages();
    // Where every rank averages with all, the plan is an all_reduce, whose order of summation differs from the
    // reference's.
    ExpectTrainsAs(training, Decentralized(selection()), kOrderOfFiftySums);
  }
}

std::string NameOf(const ::testing::TestParamInfo<const PeerSelection*>& selection) {
  return std::string(selection.param->name);
}

INSTANTIATE_TEST_SUITE_P(All, DecentralizedTraining,
                         ::testing::ValuesIn(AllPeerSelections().begin(), AllPeerSelections().end()), NameOf);

TEST(DecentralizedTrainingOverEveryTransport, EqualsItsReference) {
  for (const std::string& transport : WorldTransports()) {
    for (const char* selection : {"ring", "shift_one"}) {
      Training training = RandomTraining(absl::StrCat("decentralized:peer_selection_mode=", selection), 5, kSteps);
      training.world.transport = transport;
      ExpectTrainsAs(training, Decentralized(selection));
    }
  }
}

TEST(DecentralizedTrainingWithAMatrix, EqualsItsReferenceToTheBit) {
  const std::vector<std::vector<double>> matrix = {
      {0.4, 0.3, 0, 0.3}, {0.3, 0.4, 0.3, 0}, {0, 0.3, 0.4, 0.3}, {0.3, 0, 0.3, 0.4}};
  for (const WorldOptions& world : {WorldOptions(), Messages()}) {
    Training training = RandomTraining("decentralized:matrix=.4 .3 0 .3/.3 .4 .3 0/0 .3 .4 .3/.3 0 .3 .4", 4, kSteps);
    training.world = world;
    ExpectTrainsAs(training, [&](const Floats&) { return std::make_unique<MatrixReference>(matrix); });
  }
}

}  // namespace
}  // namespace tutti
