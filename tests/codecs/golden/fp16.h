// Golden vectors of the codec fp16; golden.h says what they are.
#ifndef TESTS_CODECS_GOLDEN_FP16_H_
#define TESTS_CODECS_GOLDEN_FP16_H_

#include "tests/codecs/golden/golden.h"

namespace tutti {

inline constexpr GoldenMessage kFp16Golden[] = {
    {Input::kUniform, 2053, {}, 0x8f53235cbc1c59a7u, 0xf140d2d9c76a5618u},
    {Input::kUniform, 2053, {.rounding = Rounding::kStochastic, .seed = 5}, 0xb3643c06bddb5effu, 0x40d82091d317ac07u},
    {Input::kBellShaped, 2053, {}, 0x46ef5d2a3e2d6d1au, 0xfc568fc4c709b933u},
    {Input::kBellShaped,
     2053,
     {.rounding = Rounding::kStochastic, .seed = 5},
     0x7447b79f2bf5ea60u,
     0x5ffb7e4cfb8d8929u},
    {Input::kPositive, 2053, {}, 0x8b1b29c618cbf45eu, 0x3146b6dfa94041e2u},
    {Input::kPositive, 2053, {.rounding = Rounding::kStochastic, .seed = 5}, 0x149ec419f8577221u, 0xe76474c1d49b0e05u},
    {Input::kOutlier, 2053, {}, 0x3ff24e99a2a8a1fbu, 0xf87164b8dfcbb0du},
    {Input::kOutlier, 2053, {.rounding = Rounding::kStochastic, .seed = 5}, 0x791ba56f8abf9cb5u, 0xe1514f730da5b69eu},
    {Input::kManyScales, 2053, {}, 0x548cc7007bc299c9u, 0x3c69fd7148a4d72cu},
    {Input::kManyScales,
     2053,
     {.rounding = Rounding::kStochastic, .seed = 5},
     0xe81729974ad49b25u,
     0x277a45ef18d6dd57u},
    {Input::kSparse, 2053, {}, 0xea9aa1e8fc78a54fu, 0x52ca84f816b698c0u},
    {Input::kSparse, 2053, {.rounding = Rounding::kStochastic, .seed = 5}, 0x63db781b4d7b9ec9u, 0x1bf2ae24efca91fu},
    {Input::kSubnormal, 2053, {}, 0x9f1cf7aa6938b20du, 0xfd9832e45eed68b5u},
    {Input::kSubnormal, 2053, {.rounding = Rounding::kStochastic, .seed = 5}, 0x9f1cf7aa6938b20du, 0xfd9832e45eed68b5u},
    {Input::kLargest, 2053, {}, 0x1ff88fa87560679u, 0x348bdb3482963ff8u},
    {Input::kLargest, 2053, {.rounding = Rounding::kStochastic, .seed = 5}, 0x1ff88fa87560679u, 0x348bdb3482963ff8u},
};

}  // namespace tutti

#endif  // TESTS_CODECS_GOLDEN_FP16_H_
