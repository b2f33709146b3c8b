// Compares HostKernels, which runs the functions of octets that GPUs run, with the SIMD loops of the CPU.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "kernels/device_kernels.h"
#include "kernels/octet.h"
#include "tests/kernels/arithmetic_cases.h"

namespace tutti::kernels {
namespace {

void ExpectNoMistake(const DeviceCase& the_case) { EXPECT_EQ(MistakeOnHost(the_case, HostKernels()), ""); }

TEST(HostKernelsTest, ReduceGivesTheBitsOfTheCpu) { VisitReduceCases(ExpectNoMistake); }

TEST(HostKernelsTest, ConvertGivesTheBitsOfTheCpu) { VisitConvertCases(ExpectNoMistake); }

TEST(HostKernelsTest, DivideAndMultiplyGiveTheBitsOfTheCpu) { VisitScaleCases(ExpectNoMistake); }

TEST(HostKernelsTest, CombineGivesTheBitsOfTheCpu) { VisitCombineCases(ExpectNoMistake); }

TEST(HostKernelsTest, AdamGivesTheBitsOfTheCpu) { VisitAdamCases(ExpectNoMistake); }

TEST(HostKernelsTest, CopyOfABufferToItselfIsNothing) {
  std::array<float, 3> values = {1, 2, 3};
  EXPECT_TRUE(HostKernels().convert(nullptr, DType::kF32, values.data(), DType::kF32, values.data(), 3).ok());
  EXPECT_EQ(values, (std::array<float, 3>{1, 2, 3}));
}

TEST(HostKernelsTest, TooManyOperandsAreRefused) {
  float value = 1;
  void* dst = &value;
  const std::vector<const void*> srcs(kMaxOperands + 1, &value);
  const absl::Status status = HostKernels().reduce(nullptr, DType::kF32, ReduceOp::kSum, 1, {&dst, 1}, srcs, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("129 sources"), absl::string_view::npos) << status;
  EXPECT_EQ(value, 1);
  EXPECT_TRUE(
      HostKernels()
          .reduce(nullptr, DType::kF32, ReduceOp::kSum, 1, {&dst, 1}, absl::MakeConstSpan(srcs).first(kMaxOperands), 1)
          .ok());
  EXPECT_EQ(value, kMaxOperands);
}

// Notes which elements a thread is given.
struct CountVisits {
  void At(std::int64_t begin, int count) const {
    ASSERT_TRUE(count >= 1 && count <= kOctet);
    for (int i = 0; i < count; ++i) ++(*visits)[static_cast<std::size_t>(begin + i)];
  }
  std::vector<int>* visits;
};

TEST(OctetTest, ThreadsShareTheElements) {
  for (const std::int64_t count : {0, 1, 8, 63, 64, 65, 1000}) {
    for (const std::int64_t threads : {1, 3, 8, 200}) {
      std::vector<int> visits(static_cast<std::size_t>(count));
      for (std::int64_t thread = 0; thread < threads; ++thread) {
        RunOctets(CountVisits{&visits}, count, thread, threads);
      }
      EXPECT_EQ(visits, std::vector<int>(static_cast<std::size_t>(count), 1)) << count << " " << threads;
    }
  }
}

TEST(CudaKernelsTest, TheTableIsThereOrTheReasonWhyNot) {
  const absl::StatusOr<const DeviceKernels*> kernels = CudaKernels();
  if (kernels.ok()) {
    EXPECT_NE((*kernels)->reduce, nullptr);
  } else {
    EXPECT_EQ(kernels.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_NE(kernels.status().message().find("TUTTI_CUDA"), absl::string_view::npos) << kernels.status();
  }
}

}  // namespace
}  // namespace tutti::kernels
