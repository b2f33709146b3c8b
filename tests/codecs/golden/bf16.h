// Golden vectors of the codec bf16; golden.h says what they are.
#ifndef TESTS_CODECS_GOLDEN_BF16_H_
#define TESTS_CODECS_GOLDEN_BF16_H_

#include "tests/codecs/golden/golden.h"

namespace tutti {

inline constexpr GoldenMessage kBf16Golden[] = {
    {Input::kUniform, 2053, {}, 0xc73512f809162459u, 0x2c9b8af848e5b251u},
    {Input::kUniform, 2053, {.rounding = Rounding::kStochastic, .seed = 5}, 0x55985088b04fcbd8u, 0x30eb07908fa0a5c8u},
    {Input::kBellShaped, 2053, {}, 0x32548532c995345eu, 0xedfffbb54b36b326u},
    {Input::kBellShaped, 2053, {.rounding = Rounding::kStochastic, .seed = 5}, 0xbf9e8a77a28120du, 0xca94551a1416ae2du},
    {Input::kPositive, 2053, {}, 0x4597060aa309229cu, 0xc69246cd34cb126cu},
    {Input::kPositive, 2053, {.rounding = Rounding::kStochastic, .seed = 5}, 0xac73eae4d380a203u, 0xcc0fb79dfac6b7ebu},
    {Input::kOutlier, 2053, {}, 0xfb0988463f1b040au, 0xe7ff93fd50128dc2u},
    {Input::kOutlier, 2053, {.rounding = Rounding::kStochastic, .seed = 5}, 0xc8313504ebde0ec9u, 0xea2245ab54539a51u},
    {Input::kManyScales, 2053, {}, 0x914b74fd3d81ef0fu, 0xeba02d0b5603cfd7u},
    {Input::kManyScales,
     2053,
     {.rounding = Rounding::kStochastic, .seed = 5},
     0x90c3a28b9a9b9f6eu,
     0x78548cec07fc2786u},
    {Input::kSparse, 2053, {}, 0x867ee8d8336ab6au, 0xdb99ddcfa0059112u},
    {Input::kSparse, 2053, {.rounding = Rounding::kStochastic, .seed = 5}, 0x7a5c6fc9a4394b54u, 0x3a09b46d41b886c4u},
    {Input::kSubnormal, 2053, {}, 0x3ad28d1c8fc7cda7u, 0x71b16c93b67879bfu},
    {Input::kSubnormal, 2053, {.rounding = Rounding::kStochastic, .seed = 5}, 0x78f0ee8eb15a9588u, 0x862f445cd223f3e0u},
    {Input::kLargest, 2053, {}, 0xac6f0c9a72385b70u, 0x348bdb3482963ff8u},
    {Input::kLargest, 2053, {.rounding = Rounding::kStochastic, .seed = 5}, 0xac6f0c9a72385b70u, 0x348bdb3482963ff8u},
};

}  // namespace tutti

#endif  // TESTS_CODECS_GOLDEN_BF16_H_
