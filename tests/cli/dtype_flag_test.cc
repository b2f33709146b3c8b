#include "bindings/cli/dtype_flag.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

TEST(DTypeFlagTest, TakesTheNamesOfTutti) {
  for (const DType type : kAllDTypes) EXPECT_EQ(ParseDTypeFlag(Name(type)).value(), type);
}

TEST(DTypeFlagTest, SaysHowATypeOfOthersIsCalledHere) {
  const std::pair<const char*, const char*> names[] = {
      {"float", "f32"},      {"float32", "f32"}, {"fp16", "f16"},  {"half", "f16"},      {"double", "f64"},
      {"bfloat16", "bf16"},  {"uint8", "u8"},    {"int64", "i64"}, {"complex64", "c64"}, {"float8_e4m3fn", "f8e4m3fn"},
      {"f8e4m3", "f8e4m3fn"}};
  for (const auto& [name, own] : names) {
    const std::string message(ParseDTypeFlag(name).status().message());
    EXPECT_EQ(message, std::string("unknown dtype '") + name + "'; did you mean " + own + "?");
  }
  EXPECT_THAT(std::string(ParseDTypeFlag("f33").status().message()),
              testing::HasSubstr("unknown dtype 'f33'; valid: "));
}

}  // namespace
}  // namespace tutti::cli
