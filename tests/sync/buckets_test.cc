#include "sync/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using ::testing::ElementsAre;

Parameter F32(std::int64_t count) { return {.name = "p", .dtype = DType::kF32, .count = count, .shape = ""}; }
Parameter F64(std::int64_t count) { return {.name = "p", .dtype = DType::kF64, .count = count, .shape = ""}; }

std::vector<std::vector<int>> ParametersOf(const Layout& layout) {
  std::vector<std::vector<int>> all;
  for (const BucketLayout& bucket : layout.buckets) all.push_back(bucket.parameters);
  return all;
}

TEST(LayOutBuckets, NoParametersMakeNoBuckets) { EXPECT_TRUE(LayOutBuckets({}, 100, 10).buckets.empty()); }

TEST(LayOutBuckets, GoesFromLastToFirstAndTheFirstBucketIsSmall) {
  const std::vector<Parameter> parameters = {F32(10), F32(10), F32(10), F32(2), F32(2)};
  const Layout layout = LayOutBuckets(parameters, 80, 16);
  EXPECT_THAT(ParametersOf(layout), ElementsAre(ElementsAre(4, 3), ElementsAre(2, 1), ElementsAre(0)));
  EXPECT_EQ(layout.buckets[1].count, 20);
  EXPECT_EQ(layout.places[4].offset, 0);
  EXPECT_EQ(layout.places[3].offset, 2);
  EXPECT_EQ(layout.places[1].bucket, 1);
  EXPECT_EQ(layout.places[1].offset, 10);
}

TEST(LayOutBuckets, AParameterBeyondTheLimitIsAlone) {
  const std::vector<Parameter> parameters = {F32(1), F32(1000), F32(1)};
  EXPECT_THAT(ParametersOf(LayOutBuckets(parameters, 16, 16)),
              ElementsAre(ElementsAre(2), ElementsAre(1), ElementsAre(0)));
}

TEST(LayOutBuckets, DTypesDoNotMixAndBucketsComeInOrderOfCompletion) {
  const std::vector<Parameter> parameters = {F64(1), F32(1), F64(1), F32(1)};
  const Layout layout = LayOutBuckets(parameters, 1 << 20, 1 << 20);
  EXPECT_THAT(ParametersOf(layout), ElementsAre(ElementsAre(3, 1), ElementsAre(2, 0)));
  EXPECT_EQ(layout.buckets[0].dtype, DType::kF32);
  EXPECT_EQ(layout.buckets[1].dtype, DType::kF64);
}

TEST(LayOutBuckets, NoBucketHasOnlyParametersWithoutElements) {
  for (const std::vector<Parameter>& parameters :
       {std::vector<Parameter>{F32(1000), F32(0)}, std::vector<Parameter>{F32(0), F32(1000)},
        std::vector<Parameter>{F32(1000), F32(0), F32(1000)}}) {
    const Layout layout = LayOutBuckets(parameters, 16, 16);
    for (const BucketLayout& bucket : layout.buckets) EXPECT_EQ(bucket.count, 1000);
  }
}

TEST(LayOutBuckets, ParametersWithoutElementsHaveAPlace) {
  const std::vector<Parameter> parameters = {F32(0), F32(4), F32(0)};
  const Layout layout = LayOutBuckets(parameters, 16, 16);
  EXPECT_THAT(ParametersOf(layout), ElementsAre(ElementsAre(2, 1, 0)));
  EXPECT_EQ(layout.buckets[0].count, 4);
  EXPECT_EQ(layout.places[0].offset, 4);
}

}  // namespace
}  // namespace tutti
