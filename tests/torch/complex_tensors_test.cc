// Parameters that are complex numbers: their gradients are averaged part by part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/harness/world.h"
#include "tests/torch/error_of.h"
#include "tutti/torch/data_parallel.h"

namespace tutti::nn {
namespace {

using ::testing::HasSubstr;

struct Weights : torch::nn::Module {
  explicit Weights(torch::ScalarType type) : w(register_parameter("w", torch::ones({5}, type))) {}
  torch::Tensor w;
};

TEST(ComplexTensorsTest, AreAveraged) {
  torch::set_num_threads(1);
  for (const torch::ScalarType type : {torch::kComplexFloat, torch::kComplexDouble}) {
    RunWorld(3, [&](Communicator& world) {
      Weights net(type);
      torch::optim::SGD optimizer(net.parameters(), /*lr=*/1);
      DataParallel replicas(world, net, {.strategy = "gradient_allreduce"});
      const c10::complex<double> factor(3 * world.rank(), 3);
      torch::real(net.w * factor).sum().backward();  // the gradient is the conjugate of the factor
      EXPECT_TRUE(torch::equal(net.w.grad(), torch::full({5}, c10::complex<double>(3, -3), type))) << net.w.grad();
      replicas.Step(optimizer);
      EXPECT_TRUE(torch::equal(net.w.detach(), torch::full({5}, c10::complex<double>(-2, 3), type))) << net.w;
    });
  }
}

struct WithBuffer : torch::nn::Module {
  explicit WithBuffer(const torch::Tensor& buffer)
      : w(register_parameter("w", torch::ones({2}))), h(register_buffer("h", buffer)) {}
  torch::Tensor w;
  torch::Tensor h;
};

// torch conjugates such numbers when it reads them: z.conj() shares the memory of z.
TEST(ComplexTensorsTest, RanksExchangeTheNumbersThatAreReadAlsoWhereOneRankHoldsConjugatedOnes) {
  const torch::Tensor z = torch::full({3}, c10::complex<double>(1, 2), torch::kComplexDouble);
  for (const Buffers buffers : {Buffers::kBroadcast, Buffers::kAverage}) {
    RunWorld(2, [&](Communicator& world) {
      WithBuffer net(world.rank() == 0 ? z.clone().conj() : torch::zeros_like(z));
      ASSERT_EQ(net.h.is_conj(), world.rank() == 0);
      DataParallel replicas(world, net, {.buffers = buffers});
      EXPECT_TRUE(torch::equal(net.h, z.conj())) << torch::view_as_real(net.h.resolve_conj());
      replicas.CheckReplicas();
      net.h.copy_(world.rank() == 0 ? 3 * z.conj() : z.conj());
      replicas.Flush();
      EXPECT_TRUE(torch::equal(net.h, (buffers == Buffers::kAverage ? 2 : 3) * z.conj()))
          << torch::view_as_real(net.h.resolve_conj());
    });
  }
}

TEST(ComplexTensorsTest, CodecsRefuseThem) {
  RunWorld(1, [&](Communicator& world) {
    Weights net(torch::kComplexFloat);
    EXPECT_THAT(ErrorOf([&] { DataParallel(world, net, {.strategy = "bytegrad"}); }), HasSubstr("c64"));
  });
}

}  // namespace
}  // namespace tutti::nn
