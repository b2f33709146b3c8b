// Golden vectors of the codec sign; golden.h says what they are.
#ifndef TESTS_CODECS_GOLDEN_SIGN_H_
#define TESTS_CODECS_GOLDEN_SIGN_H_

#include "tests/codecs/golden/golden.h"

namespace tutti {

inline constexpr GoldenMessage kSignGolden[] = {
    {Input::kUniform, 2053, {.block = 256}, 0x13fd8160c20b6981u, 0x758ef96f68672313u},
    {Input::kUniform, 2053, {.block = 0}, 0xbbaaa7384faf4676u, 0xd2802353128ac3acu},
    {Input::kBellShaped, 2053, {.block = 256}, 0x3c36bf893b2838a3u, 0xc52731cd2340e25u},
    {Input::kBellShaped, 2053, {.block = 0}, 0x681814b7a6e48db3u, 0x5b8e599dc036e6bfu},
    {Input::kPositive, 2053, {.block = 256}, 0xf4c7092eb07b48f0u, 0xda0fe023540db4b8u},
    {Input::kPositive, 2053, {.block = 0}, 0x2d72ebdff654e52u, 0x146de43c01a1fb1cu},
    {Input::kOutlier, 2053, {.block = 256}, 0xd5729ff63347a8au, 0x155b2270a3d4670bu},
    {Input::kOutlier, 2053, {.block = 0}, 0x7eec4f90d247a4b0u, 0x189cc9ebbb4e1222u},
    {Input::kManyScales, 2053, {.block = 256}, 0xd9af3bc7ca7f3717u, 0x39814f3fc313f57au},
    {Input::kManyScales, 2053, {.block = 0}, 0xfa590145fcd5ad4eu, 0x996a64d7946db296u},
    {Input::kSparse, 2053, {.block = 256}, 0xf675e861eedfedebu, 0xc8dc0f5b683454b5u},
    {Input::kSparse, 2053, {.block = 0}, 0x435ebdea1029e639u, 0x553ab56a54f7ad5eu},
    {Input::kSubnormal, 2053, {.block = 256}, 0x5fa1274d390a4363u, 0x128e34f849c28661u},
    {Input::kSubnormal, 2053, {.block = 0}, 0xbad56b20e57ed042u, 0xef3c40a74c858450u},
    {Input::kLargest, 2053, {.block = 256}, 0x7bb84a121c4a992fu, 0x4da322ed2e40c401u},
    {Input::kLargest, 2053, {.block = 0}, 0x4a6afea5b517024eu, 0xd127b22a1e37f809u},
    {Input::kZeros, 2053, {.block = 256}, 0x2219eab05c368550u, 0xc381bc20ae858935u},
    {Input::kZeros, 2053, {.block = 0}, 0x771ca41a38adda01u, 0xc381bc20ae858935u},
    {Input::kUniform, 7, {.block = 256}, 0xac9f5ca7d16c0f64u, 0xb31ea2b3708541c8u},
};

}  // namespace tutti

#endif  // TESTS_CODECS_GOLDEN_SIGN_H_
