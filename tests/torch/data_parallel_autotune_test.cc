// Training that tunes itself ends with the weights of training that does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/harness/world.h"
#include "tests/torch/error_of.h"
#include "tests/torch/small_net.h"
#include "tutti/torch/data_parallel.h"

namespace tutti::nn {
namespace {

using ::testing::HasSubstr;

constexpr int kSize = 2;
constexpr int kStepsOfTuning = 60;  // more than the tuning takes

// A model whose gradients are integers, however they are added up; buckets hold a parameter each at first.
struct Model : torch::nn::Module {
  Model() {
    for (int i = 0; i < 5; ++i) weights.push_back(register_parameter(std::to_string(i), torch::zeros({200, 150})));
  }
  // The gradient of every element of weight `i`, but for those in `without`, is factor · (i + 1).
  torch::Tensor Loss(int factor, int without = -1) const {
    torch::Tensor loss = torch::zeros({});
    for (int i = 0; i < static_cast<int>(weights.size()); ++i) {
      if (i != without) loss = loss + factor * (i + 1) * weights[i].sum();
    }
    return loss;
  }
  torch::Tensor Flat() const {
    std::vector<torch::Tensor> parts;
    for (const torch::Tensor& weight : weights) parts.push_back(weight.detach().flatten());
    return torch::cat(parts);
  }

  std::vector<torch::Tensor> weights;
};

DataParallelOptions Options(bool autotune, bool allow_unused = false) {
  return {.bucket_bytes = 64 << 10, .first_bucket_bytes = 64 << 10, .allow_unused = allow_unused, .autotune = autotune};
}

// Trains by `step`, which makes the gradients of one step; returns the weights at the end.
template <typename Step>
torch::Tensor TrainedBy(Communicator& world, Model& model, bool autotune, bool allow_unused, const Step& step) {
  DataParallel replicas(world, model, Options(autotune, allow_unused));
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.5).momentum(0.5));
  for (int i = 0; i < kStepsOfTuning; ++i) {
    step(replicas, optimizer, i);
    replicas.Step(optimizer);
  }
  EXPECT_EQ(replicas.tuning().state, autotune ? TuningState::kDone : TuningState::kOff);
  EXPECT_EQ(replicas.tuning().trials.empty(), !autotune);
  EXPECT_EQ(ErrorOf([&] { replicas.CheckReplicas(); }), "");
  return model.Flat();
}

template <typename Step>
void ExpectEqualWeights(const Step& step, bool allow_unused = false) {
  torch::set_num_threads(1);
  RunWorld(kSize, [&](Communicator& world) {
    Model tuned;
    Model plain;
    const auto on = [&](Model& model) {
      return [&](DataParallel& replicas, torch::optim::Optimizer& optimizer, int i) {
        step(model, replicas, optimizer, world.rank(), i);
      };
    };
    const torch::Tensor expected = TrainedBy(world, plain, false, allow_unused, on(plain));
    EXPECT_TRUE(TrainedBy(world, tuned, true, allow_unused, on(tuned)).equal(expected));
    EXPECT_FALSE(expected.equal(torch::zeros_like(expected)));
  });
}

TEST(Autotune, EndsWithTheSameWeights) {
  for (const bool set_to_none : {true, false}) {
    ExpectEqualWeights([&](Model& model, DataParallel&, torch::optim::Optimizer& optimizer, Rank rank, int step) {
      optimizer.zero_grad(set_to_none);
      model.Loss(rank + step % 5).backward();
    });
  }
}

TEST(Autotune, KeepsGradientsThatAreAccumulated) {
  ExpectEqualWeights([](Model& model, DataParallel& replicas, torch::optim::Optimizer& optimizer, Rank rank, int step) {
    if (step % 3 == 0) optimizer.zero_grad(step % 2 == 0);
    for (int i = 0; i <= rank; ++i) {  // one rank more often than the other
      const DataParallel::NoSync no_sync(replicas);
      model.Loss(1).backward();
    }
    model.Loss(2).backward();
  });
}

TEST(Autotune, LeavesUnusedParametersAlone) {
  ExpectEqualWeights(
      [](Model& model, DataParallel&, torch::optim::Optimizer& optimizer, Rank rank, int step) {
        optimizer.zero_grad();
        model.Loss(1 + rank, step % 2 == 0 || rank == 0 ? 3 : -1).backward();
        EXPECT_EQ(model.weights[3].grad().defined(), step % 2 == 1) << "step " << step;
      },
      /*allow_unused=*/true);
}

TEST(Autotune, LeavesGradientsThatAUserHoldsReadable) {
  torch::set_num_threads(1);
  RunWorld(kSize, [](Communicator& world) {
    Model model;
    DataParallel replicas(world, model, Options(true));
    model.Loss(2).backward();
    const torch::Tensor held = model.weights[0].grad();
    while (replicas.tuning().trials.empty()) {
      model.zero_grad();
      model.Loss(1).backward();
    }
    model.zero_grad();
    model.Loss(5).backward();
    EXPECT_TRUE(held.equal(torch::full_like(held, 1)));  // the last gradient before the buckets were made anew
    EXPECT_TRUE(model.weights[0].grad().equal(torch::full_like(held, 5)));
  });
}

TEST(Autotune, GoesOnFromACheckpointOfTheMiddle) {
  torch::set_num_threads(1);
  RunWorld(kSize, [](Communicator& world) {
    Model model;
    std::string state;
    {
      DataParallel replicas(world, model, Options(true));
      for (int step = 0; step < 12; ++step) {
        model.zero_grad();
        model.Loss(1).backward();
      }
      EXPECT_EQ(replicas.tuning().state, TuningState::kTuning);
      state = replicas.SaveState();
    }
    for (const bool autotune : {false, true}) {
      DataParallel replicas(world, model, Options(autotune));
      replicas.LoadState({state});
      model.zero_grad();
      model.Loss(world.rank()).backward();
      EXPECT_TRUE(model.weights[1].grad().equal(torch::full_like(model.weights[1], 1)));
    }
  });
}

TEST(Autotune, EndsWithTheErrorOfALostRank) {
  torch::set_num_threads(1);
  RunWorld(3, [](Communicator& world) {
    Model model;
    DataParallel replicas(world, model, Options(true));
    const std::string error = ErrorOf([&] {
      for (int step = 0; step < kStepsOfTuning; ++step) {
        if (world.rank() == 2 && step == 9) world.Abort(absl::UnavailableError("rank 2 has died"));
        model.zero_grad();
        model.Loss(1).backward();
      }
    });
    EXPECT_THAT(error, HasSubstr("rank 2 has died"));
  });
}

TEST(Autotune, SaysWhyThereIsNothingToTune) {
  torch::set_num_threads(1);
  RunWorld(kSize, [](Communicator& world) {
    torch::nn::Linear net(4, 2);
    DataParallel replicas(world, *net, {.strategy = "decentralized", .autotune = true});
    EXPECT_EQ(replicas.tuning().state, TuningState::kNothingToTune);
    EXPECT_THAT(replicas.tuning().reason, HasSubstr("exchanges weights"));
  });
}

}  // namespace
}  // namespace tutti::nn
