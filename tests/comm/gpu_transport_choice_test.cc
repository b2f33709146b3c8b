#include "comm/gpu_transport_choice.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti {
namespace {

using testing::HasSubstr;

std::string ChoiceOf(absl::string_view wanted, const std::vector<GpuOfRank>& gpus) {
  const absl::StatusOr<GpuTransportChoice> choice = ChooseGpuTransport(wanted, gpus);
  if (!choice.ok()) return std::string(choice.status().message());
  return (choice->staged ? "staged: " : "nccl: ") + choice->reason;
}

TEST(GpuTransportChoiceTest, AutoIsNcclWhereAllHaveItAndAGpuEach) {
  EXPECT_EQ(ChoiceOf("auto", {{"a", ""}, {"b", ""}, {"c", ""}}), "nccl: all ranks have NCCL, and a GPU each");
  EXPECT_EQ(ChoiceOf("auto", {{"a", ""}, {"b", ""}, {"a", ""}}),
            "staged: ranks 0 and 2 have one GPU, which NCCL refuses");
  EXPECT_EQ(ChoiceOf("auto", {{"a", ""}, {"b", "no libnccl"}}), "staged: rank 1 has no NCCL: no libnccl");
}

TEST(GpuTransportChoiceTest, WhatTheUserWantsIsTaken) {
  EXPECT_THAT(ChoiceOf("staged", {{"a", ""}, {"b", ""}}), HasSubstr("staged: as TUTTI_GPU_TRANSPORT"));
  EXPECT_THAT(ChoiceOf("nccl", {{"a", ""}, {"a", ""}}), HasSubstr("nccl: as TUTTI_GPU_TRANSPORT"));
  const absl::Status without = ChooseGpuTransport("nccl", {{"a", ""}, {"b", "no libnccl"}}).status();
  EXPECT_EQ(without.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(without.message()), HasSubstr("rank 1 has no NCCL: no libnccl"));
  EXPECT_EQ(CheckGpuTransport("ucx").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tutti
