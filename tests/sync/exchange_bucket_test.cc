// The error of a training when a peer never exchanges a bucket.
#include "sync/exchange_bucket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/rank_barrier.h"
#include "tests/harness/world.h"
#include "tutti/synchronizer.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// A model whose last parameter has a bucket of its own, and whose others share the second bucket.
class Model {
 public:
  Model(Communicator& world, const std::string& strategy)
      : weights_(114),
        made_(Synchronizer::Create(world,
                                   {{.name = "stem", .count = 100, .shape = "100", .weights = weights_.data()},
                                    {.name = "middle", .count = 10, .shape = "10", .weights = weights_.data() + 100},
                                    {.name = "head", .count = 4, .shape = "4", .weights = weights_.data() + 110}},
                                   {.strategy = strategy, .bucket_bytes = 1000, .first_bucket_bytes = 16})) {}

  absl::Status Step() {
    if (!made_.ok()) return made_.status();
    if (absl::Status status = synchronizer().BeginForward(); !status.ok()) return status;
    if (absl::Status status = synchronizer().BeginBackward(); !status.ok()) return status;
    for (const int i : {2, 1, 0}) synchronizer().MarkReady(i);
    if (absl::Status status = synchronizer().FinishBackward(); !status.ok()) return status;
    if (absl::Status status = synchronizer().BeforeStep(); !status.ok()) return status;
    return synchronizer().AfterStep();
  }

  Synchronizer& synchronizer() { return **made_; }

 private:
  std::vector<float> weights_;
  absl::StatusOr<std::unique_ptr<Synchronizer>> made_;
};

// Makes one step on two ranks, then one in which rank 1 does only `beginning`, and returns the error of rank 0.
std::string ErrorOfStep(const std::string& strategy, const std::function<void(Synchronizer&)>& beginning) {
  std::string error;
  RunWorldWithLittleTime(2, {.communicator = {.timeout = absl::Seconds(1)}},
                         [&](Communicator& world, RankBarrier& ranks) {
                           Model model(world, strategy);
                           if (!ranks.AllOk(model.Step())) return;
                           if (world.rank() == 1) {
                             beginning(model.synchronizer());
                           } else {
                             const absl::Status late = model.Step();
                             EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
                             error = std::string(late.message());
                           }
                           ranks.Wait();
                         });
  return error;
}

TEST(ExchangeBucket, ATimeoutNamesTheStepTheBucketAndItsParameters) {
  const std::string error = ErrorOfStep("gradient_allreduce", [](Synchronizer& synchronizer) {
    EXPECT_EQ(synchronizer.BeginBackward(), absl::OkStatus());
    synchronizer.MarkReady(2);
  });
  EXPECT_THAT(error, HasSubstr("for rank 1 in call"));
  EXPECT_THAT(
      error, HasSubstr("; the training waited for bucket 1 (parameters stem … middle) in training step 1 (from 0 on)"));
}

TEST(ExchangeBucket, ABucketOfOneParameterHasOneName) {
  const std::string error = ErrorOfStep("gradient_allreduce", [](Synchronizer&) {});
  EXPECT_THAT(error, HasSubstr("; the training waited for bucket 0 (parameters head) in training step 1 (from 0 on)"));
}

TEST(ExchangeBucket, ATimeoutOfWeightsNamesThem) {
  const std::string error = ErrorOfStep("decentralized", [](Synchronizer&) {});
  EXPECT_THAT(error, HasSubstr("; the training waited for bucket 0 (parameters head) in training step 1 (from 0 on)"));
}

}  // namespace
}  // namespace tutti
