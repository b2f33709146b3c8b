// Predicted steps, where the answer is known from the times of the buckets.
#include "bindings/cli/advise/prediction.h"

#include <string>

#include "bindings/cli/advise/strategies.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

constexpr std::int64_t kParameters = 4'000'000;

AdvisedTraining OnLink(double bytes_per_s) {
  AdvisedTraining training{.ranks = 4, .parameters = kParameters, .step_s = 0.1};
  training.model.between_nodes.bytes_per_s = bytes_per_s;
  return training;
}

StepPrediction Predict(const std::string& strategy, const AdvisedTraining& training) {
  const absl::StatusOr<Strategy> parsed = ParseStrategy(strategy);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const absl::StatusOr<StepPrediction> prediction = PredictStep(*parsed, training);
  EXPECT_TRUE(prediction.ok()) << prediction.status();
  return prediction.value_or(StepPrediction());
}

TEST(AdvisePredictionTest, BytesAreThoseOfThePlans) {
  EXPECT_EQ(Predict("gradient_allreduce", OnLink(1e9)).wire_bytes, 2 * 3 * kParameters);  // 2(n-1)/n · N
  EXPECT_EQ(Predict("decentralized:peer_selection_mode=shift_one", OnLink(1e9)).wire_bytes, 4 * kParameters);
}

TEST(AdvisePredictionTest, OneBucketIsNotHidden) {
  AdvisedTraining training = OnLink(100e6);
  training.first_bucket_bytes = 4 * kParameters;
  const StepPrediction step = Predict("gradient_allreduce", training);
  EXPECT_GT(step.communication_s, 0.24);  // 24 MB at 100 MB/s
  EXPECT_NEAR(step.step_s, training.step_s + step.communication_s, 1e-9);
  EXPECT_NEAR(step.hidden(training), 0, 1e-9);
}

TEST(AdvisePredictionTest, BackwardHidesAllBucketsButTheLast) {
  AdvisedTraining training = OnLink(10e9);
  training.step_s = 10;
  training.first_bucket_bytes = training.bucket_bytes = kParameters;  // 4 buckets of equal size
  const StepPrediction step = Predict("gradient_allreduce", training);
  EXPECT_NEAR(step.step_s, training.step_s + step.communication_s / 4, 1e-9);
  EXPECT_NEAR(step.hidden(training), 0.75, 1e-6);
}

TEST(AdvisePredictionTest, BucketsLeaveWhenTheirLayersAreComplete) {
  AdvisedTraining training = OnLink(10e9);
  training.step_s = 10;
  training.first_bucket_bytes = training.bucket_bytes = kParameters;  // 4 buckets of equal size
  training.layer_parameters = kParameters / 2;                        // so that the last two leave when backward ends
  const StepPrediction two = Predict("gradient_allreduce", training);
  EXPECT_NEAR(two.step_s, training.step_s + two.communication_s / 2, 1e-9);
  training.layer_parameters = kParameters * 3 / 4;  // the rest is a layer that is smaller
  const StepPrediction small = Predict("gradient_allreduce", training);
  EXPECT_NEAR(small.step_s, training.step_s + small.communication_s / 4, 1e-9);
  training.layer_parameters = kParameters;
  const StepPrediction all = Predict("gradient_allreduce", training);
  EXPECT_NEAR(all.step_s, training.step_s + all.communication_s, 1e-9);
}

TEST(AdvisePredictionTest, TheWireBoundsTheStepWhereItIsSlow) {
  AdvisedTraining training = OnLink(1e6);
  training.first_bucket_bytes = training.bucket_bytes = kParameters;
  const StepPrediction step = Predict("gradient_allreduce", training);
  // The first bucket leaves when forward and a quarter of backward are over.
  EXPECT_NEAR(step.step_s, 0.1 * (1.0 / 3 + 2.0 / 3 / 4) + step.communication_s, 1e-9);
}

// Where the wire, or the training, takes far longer than the other, that decides; where both take as long, ranks wait
// for the later of them.
TEST(AdvisePredictionTest, WeightsTravelDuringTheWholeStep) {
  const AdvisedTraining slow = OnLink(1e6);
  const AdvisedTraining fast = OnLink(1e9);
  const double copies_s = 4.0 * 4 * kParameters / slow.model.copy_bytes_per_s;  // there and back, read and written
  for (const char* strategy : {"decentralized:peer_selection_mode=shift_one", "low_precision_decentralized"}) {
    const StepPrediction waits = Predict(strategy, slow);
    EXPECT_NEAR(waits.step_s / (waits.communication_s + copies_s), 1, 1e-3) << strategy;
    AdvisedTraining alike = OnLink(1e8);
    alike.step_s = Predict(strategy, alike).communication_s;
    EXPECT_GT(Predict(strategy, alike).step_s, 1.3 * alike.step_s) << strategy;
  }
  EXPECT_NEAR(Predict("decentralized:peer_selection_mode=shift_one", fast).step_s / (fast.step_s + copies_s), 1, 0.02);
  // The next forward waits until differences are encoded.
  EXPECT_GT(Predict("low_precision_decentralized", fast).step_s, fast.step_s + copies_s + 1e-3);
}

TEST(AdvisePredictionTest, AWarmUpIsNotTheSteadyState) {
  EXPECT_EQ(Predict("qadam", OnLink(1e8)).wire_bytes, Predict("bytegrad", OnLink(1e8)).wire_bytes);
}

TEST(AdvisePredictionTest, RoundsInTheBackgroundAreRare) {
  AdvisedTraining training = OnLink(1e9);
  const StepPrediction every = Predict("async:sync_interval_ms=1", training);
  const StepPrediction rare = Predict("async:sync_interval_ms=5000", training);
  EXPECT_LT(rare.wire_bytes * 10, every.wire_bytes);
  EXPECT_LT(rare.step_s, training.step_s * 1.01);
}

// A step applies an average or takes a snapshot, so that there are two steps to a round at least.
TEST(AdvisePredictionTest, RoundsInTheBackgroundTakeTwoSteps) {
  AdvisedTraining training = OnLink(1e12);
  training.step_s = 1;
  const StepPrediction each = Predict("decentralized", training);
  const StepPrediction background = Predict("async:sync_interval_ms=1", training);
  EXPECT_EQ(background.wire_bytes, each.wire_bytes / 2);
}

TEST(AdvisePredictionTest, BusyProcessorsMakeCommunicationCostTraining) {
  AdvisedTraining idle = OnLink(1e9);
  AdvisedTraining busy = idle;
  busy.cores_per_rank = 1;
  AdvisedTraining shared = idle;
  shared.cores_per_rank = 0.25;
  for (const char* strategy : {"gradient_allreduce", "bytegrad", "decentralized", "async"}) {
    const double free_s = Predict(strategy, idle).step_s;
    const double busy_s = Predict(strategy, busy).step_s;
    const double shared_s = Predict(strategy, shared).step_s;
    EXPECT_GT(busy_s, free_s) << strategy;
    EXPECT_GT(shared_s, busy_s) << strategy;
  }
}

// Both send and touch the same bytes; the rotation has nearly twice as much to compute.
TEST(AdvisePredictionTest, CodecsHaveTheirOwnSpeeds) {
  const AdvisedTraining training = OnLink(1e12);
  const StepPrediction plain = Predict("bytegrad:codec=uint4_block", training);
  const StepPrediction rotated = Predict("bytegrad:codec=uint4_block,rotation=true", training);
  EXPECT_EQ(rotated.wire_bytes, plain.wire_bytes);
  EXPECT_GT(rotated.communication_s, 1.3 * plain.communication_s);
}

TEST(AdvisePredictionTest, FastMemoryDoesNotHasteWhatCodecsCompute) {
  const auto communication_s = [](double faster) {
    AdvisedTraining training = OnLink(1e12);
    CostModel& model = training.model;
    for (double* rate : {&model.memory_bytes_per_s, &model.copy_bytes_per_s, &model.scratch_bytes_per_s}) {
      *rate *= faster;
    }
    return Predict("bytegrad:codec=uint4_block,rotation=true", training).communication_s;
  };
  EXPECT_GT(communication_s(1000), communication_s(1) / 2);
  EXPECT_GT(communication_s(0.01), communication_s(1) * 20);
}

// docs/choosing_a_strategy.md and the help of --memory-bandwidth say so.
TEST(AdvisePredictionTest, TheDefaultMemoryIsAQuarterFasterThanItsMemcpy) {
  const CostModel& model = DefaultCostModel();
  EXPECT_EQ(model.memory_bytes_per_s, 1.25 * model.copy_bytes_per_s / 2);  // memcpy reads as many bytes as it writes
}

TEST(AdvisePredictionTest, HalfAProcessorEncodesForTwiceAsLong) {
  AdvisedTraining training = OnLink(1e12);
  training.cores_per_rank = 1;
  const double whole_s = Predict("bytegrad:codec=uint4_block,rotation=true", training).communication_s;
  training.cores_per_rank = 0.5;
  const double half_s = Predict("bytegrad:codec=uint4_block,rotation=true", training).communication_s;
  EXPECT_NEAR(half_s / whole_s, 2, 0.02);
}

TEST(AdvisePredictionTest, SlowCodecsAreHiddenBehindASlowLink) {
  const AdvisedTraining training = OnLink(1e6);
  const StepPrediction plain = Predict("bytegrad:codec=uint4_block", training);
  const StepPrediction rotated = Predict("bytegrad:codec=uint4_block,rotation=true", training);
  EXPECT_LT(rotated.communication_s, 1.01 * plain.communication_s);
}

TEST(AdvisePredictionTest, ACodecThatWasNotMeasuredIsNamed) {
  const absl::StatusOr<StepPrediction> unknown = PredictStep(*ParseStrategy("bytegrad:block=512"), OnLink(1e9));
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound) << unknown.status();
  EXPECT_THAT(std::string(unknown.status().message()), testing::HasSubstr("Encode/uint8_block:block=512"));
}

TEST(AdvisePredictionTest, EveryAdvisedStrategyIsPredicted) {
  for (const AdvisedStrategy& strategy : AdvisedStrategies()) Predict(std::string(strategy.name), OnLink(1e9));
}

TEST(AdvisePredictionTest, WhatAStrategyDoesNotServeHasTheReason) {
  AdvisedTraining training = OnLink(1e9);
  training.ranks = 3;
  training.ranks_per_node = 2;
  const absl::StatusOr<StepPrediction> refused = PredictStep(*ParseStrategy("low_precision_decentralized"), training);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), testing::HasSubstr("node"));
}

}  // namespace
}  // namespace tutti::cli
