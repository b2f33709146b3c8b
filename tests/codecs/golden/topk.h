// Golden vectors of the codec topk; golden.h says what they are.
#ifndef TESTS_CODECS_GOLDEN_TOPK_H_
#define TESTS_CODECS_GOLDEN_TOPK_H_

#include "tests/codecs/golden/golden.h"

namespace tutti {

inline constexpr GoldenMessage kTopKGolden[] = {
    {Input::kUniform, 2053, {.block = 65536, .density = 0.01}, 0x437b7e78fb46107du, 0x8e132ee2969c87cdu},
    {Input::kUniform, 2053, {.block = 256, .density = 0.1}, 0xa34efdb5230887b3u, 0xc1234837cb4fa6c6u},
    {Input::kBellShaped, 2053, {.block = 65536, .density = 0.01}, 0xcf757e84e409e51cu, 0x1b2b113680c5a730u},
    {Input::kBellShaped, 2053, {.block = 256, .density = 0.1}, 0x772ab395fac27fbcu, 0xc696bb33496bb2ddu},
    {Input::kPositive, 2053, {.block = 65536, .density = 0.01}, 0xbaaf5ebf4eb7c1bdu, 0xa8282b93bc289e08u},
    {Input::kPositive, 2053, {.block = 256, .density = 0.1}, 0x2fc5c991f8cb7bf4u, 0xe7b05cf5cc3b1b80u},
    {Input::kOutlier, 2053, {.block = 65536, .density = 0.01}, 0xe722787d1cf36e9fu, 0x418ebb0952e090e2u},
    {Input::kOutlier, 2053, {.block = 256, .density = 0.1}, 0xae2ef5f587f3f68du, 0x89d1bd5d7c5b91e2u},
    {Input::kManyScales, 2053, {.block = 65536, .density = 0.01}, 0xc0e81257e44ff2b9u, 0x8df4b79b075236dcu},
    {Input::kManyScales, 2053, {.block = 256, .density = 0.1}, 0x7d1c25a7f7410b25u, 0xe26367b69bfd723fu},
    {Input::kSparse, 2053, {.block = 65536, .density = 0.01}, 0x63f003d4030d7f8au, 0x1fd19fdd371cfb23u},
    {Input::kSparse, 2053, {.block = 256, .density = 0.1}, 0xdf7b1d8cf554c548u, 0xe0065bafe7854af0u},
    {Input::kSubnormal, 2053, {.block = 65536, .density = 0.01}, 0xafa2a2ad15850a5eu, 0x742fd9ed0a08c4e2u},
    {Input::kSubnormal, 2053, {.block = 256, .density = 0.1}, 0x11e7c542f66fb596u, 0x7be478d6a366eb6fu},
    {Input::kLargest, 2053, {.block = 65536, .density = 0.01}, 0x464d22651873e6a5u, 0xacb47f5a964bc601u},
    {Input::kLargest, 2053, {.block = 256, .density = 0.1}, 0x52f0d3e3922f22eu, 0x4a3d3a060345b451u},
    {Input::kZeros, 2053, {.block = 65536, .density = 0.01}, 0xe2518f87a10a782eu, 0xc381bc20ae858935u},
    {Input::kZeros, 2053, {.block = 256, .density = 0.1}, 0x905c9ec45bb6d41cu, 0xc381bc20ae858935u},
    {Input::kUniform, 70000, {.block = 0, .density = 0.001}, 0xfad95d66f6382bccu, 0x1f7e173a98a78aau},
    {Input::kUniform, 5, {.block = 0, .density = 0.9}, 0x69b70cf3aa848d8u, 0xc502320635c0c9d6u},
};

}  // namespace tutti

#endif  // TESTS_CODECS_GOLDEN_TOPK_H_
