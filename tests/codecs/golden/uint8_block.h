// Golden vectors of the codec uint8_block; golden.h says what they are.
#ifndef TESTS_CODECS_GOLDEN_UINT8_BLOCK_H_
#define TESTS_CODECS_GOLDEN_UINT8_BLOCK_H_

#include "tests/codecs/golden/golden.h"

namespace tutti {

inline constexpr GoldenMessage kUint8BlockGolden[] = {
    {Input::kZeros, 5, {.block = 1024}, 0xac525433fe8a0ad3u, 0xee85fafd354b0935u},
    {Input::kZeros, 2053, {.block = 1024}, 0x9bddbc8dc3bf03e4u, 0xc381bc20ae858935u},
    {Input::kZeros, 2053, {.block = 0}, 0x9de641b8e4e487a0u, 0xc381bc20ae858935u},
    {Input::kZeros, 1000, {.block = 16}, 0x284fa0a7be1af3f4u, 0x94eb5aa73e186ba5u},
    {Input::kConstant, 5, {.block = 1024}, 0x7cfe38c689ab9b61u, 0x419f50495a6b378bu},
    {Input::kConstant, 2053, {.block = 1024}, 0x29f8c1ea0dfac91au, 0x7ae4411d41a278bu},
    {Input::kConstant, 2053, {.block = 0}, 0x933b695d775fb4eau, 0x7ae4411d41a278bu},
    {Input::kConstant, 1000, {.block = 16}, 0xfcf2352787cb39eu, 0x1580e40b6d6676d5u},
    {Input::kNegativeConstant, 5, {.block = 1024}, 0x34ac733e2f9f14fu, 0xb553101a2c786ff5u},
    {Input::kNegativeConstant, 2053, {.block = 1024}, 0xb29a8e6e0cdc114cu, 0x6c22b90ada04eff5u},
    {Input::kNegativeConstant, 2053, {.block = 0}, 0xc7ac6f74daa959f8u, 0x6c22b90ada04eff5u},
    {Input::kNegativeConstant, 1000, {.block = 16}, 0x9c05f9876f87868cu, 0x1df1214b3f5007a5u},
    {Input::kUniform, 5, {.block = 1024}, 0x9962824184d88bb0u, 0xc502320635c0c9d6u},
    {Input::kUniform, 2053, {.block = 1024}, 0x239e8caf19c18fd1u, 0xf7d71d486ac19e4cu},
    {Input::kUniform, 2053, {.block = 0}, 0x20056cdf0af2dc9au, 0xe5a6ea46beabd71fu},
    {Input::kUniform, 1000, {.block = 16}, 0x73adfc702ef80d9cu, 0x2a2306452a953493u},
    {Input::kBellShaped, 5, {.block = 1024}, 0xdf8d5803d55d6b69u, 0xe1d4e28213938cdbu},
    {Input::kBellShaped, 2053, {.block = 1024}, 0x4a61f09919c06fddu, 0x52f6f347ae3ba1eu},
    {Input::kBellShaped, 2053, {.block = 0}, 0x344586d57675d478u, 0x976e72a039b6e841u},
    {Input::kBellShaped, 1000, {.block = 16}, 0x90b79b9c54d8cf5du, 0x3b9a2fb9cb0a531bu},
    {Input::kPositive, 5, {.block = 1024}, 0x8f093d7c53906dfeu, 0xeea33a1e9f2953dcu},
    {Input::kPositive, 2053, {.block = 1024}, 0x71e0565e7deaa1c7u, 0x30de8317c604faaeu},
    {Input::kPositive, 2053, {.block = 0}, 0xe5b2062b2e12bdb5u, 0x12d9640dce7d1b54u},
    {Input::kPositive, 1000, {.block = 16}, 0xc1551805c6756c20u, 0x5b6994a90ba3292au},
    {Input::kNegative, 5, {.block = 1024}, 0x64603c3801c2227bu, 0x7822ae4910ce4d11u},
    {Input::kNegative, 2053, {.block = 1024}, 0xf1e64ab989709ba8u, 0x934e98133df1deceu},
    {Input::kNegative, 2053, {.block = 0}, 0xd8dafac9ec267818u, 0x39d688dda881de4au},
    {Input::kNegative, 1000, {.block = 16}, 0xa2e34294aed7ea01u, 0xb767408c60855054u},
    {Input::kOffset, 5, {.block = 1024}, 0x360a066cfe23434u, 0x593c188fefc3865au},
    {Input::kOffset, 2053, {.block = 1024}, 0x3591bafaa5405df3u, 0x6bb5c9f2cd663442u},
    {Input::kOffset, 2053, {.block = 0}, 0xcba6715bf0e836fau, 0x6bb5c9f2cd663442u},
    {Input::kOffset, 1000, {.block = 16}, 0x407c21ef604fa707u, 0x9bb1ab08efef0149u},
    {Input::kOutlier, 5, {.block = 1024}, 0x5e943b6d207fb9b0u, 0x340e6e58feb0032u},
    {Input::kOutlier, 2053, {.block = 1024}, 0xc7aa6535576f6333u, 0x90838602f9aff9edu},
    {Input::kOutlier, 2053, {.block = 0}, 0xaf5eee2799836c15u, 0x6e41e78c8bffeef0u},
    {Input::kOutlier, 1000, {.block = 16}, 0x4d1bf96c9adfd903u, 0xdacb85244e0f1b1du},
    {Input::kManyScales, 5, {.block = 1024}, 0x87bcd531fd2a3787u, 0xc1ac83fc432b213du},
    {Input::kManyScales, 2053, {.block = 1024}, 0xb021c94d3775ffceu, 0x5a60c7b3157ec777u},
    {Input::kManyScales, 2053, {.block = 0}, 0x9a575935ed074d6du, 0x22f1040e82e092c9u},
    {Input::kManyScales, 1000, {.block = 16}, 0x5429934755a9b638u, 0xf67ae90629b57759u},
    {Input::kSparse, 5, {.block = 1024}, 0x17e5850aee18babeu, 0x5596ffad5719e184u},
    {Input::kSparse, 2053, {.block = 1024}, 0xb0331804208d6dd0u, 0x68a99556823d4534u},
    {Input::kSparse, 2053, {.block = 0}, 0xea45d565eaa48955u, 0x98ea6e4061b61910u},
    {Input::kSparse, 1000, {.block = 16}, 0xca3b56fd2cf3e368u, 0xe2a217bfdd062e17u},
    {Input::kTiny, 5, {.block = 1024}, 0x41224694bd20134fu, 0xc91ec8f9383c6ff1u},
    {Input::kTiny, 2053, {.block = 1024}, 0x6b9cea6eec305602u, 0xaa99bc25978f5608u},
    {Input::kTiny, 2053, {.block = 0}, 0xe7059cd7e89e4da4u, 0x2e7980499b8f5a4du},
    {Input::kTiny, 1000, {.block = 16}, 0x83092c3c54b8de27u, 0x308673366cb80f15u},
    {Input::kSubnormal, 5, {.block = 1024}, 0xc90b8785ce7f813du, 0x725c432c68d9df33u},
    {Input::kSubnormal, 2053, {.block = 1024}, 0x4c6b278c54ba7b66u, 0x4fb55c0b0cbef8b1u},
    {Input::kSubnormal, 2053, {.block = 0}, 0x62eddba4022d4b10u, 0xb47136a29686c7d9u},
    {Input::kSubnormal, 1000, {.block = 16}, 0x1a6611a84a474a24u, 0xe05dcb6a0ce4ef95u},
    {Input::kHuge, 5, {.block = 1024}, 0x86a7ef83f425e13cu, 0x84e41a01115a942au},
    {Input::kHuge, 2053, {.block = 1024}, 0xc88bda46f887877du, 0x4524e35044853555u},
    {Input::kHuge, 2053, {.block = 0}, 0x4e4e13f13cc5db01u, 0x28b395fdcfec8c35u},
    {Input::kHuge, 1000, {.block = 16}, 0x4afa6a83cbe6ec4eu, 0x790a02d1082e480bu},
    {Input::kLargest, 5, {.block = 1024}, 0x4665b01bf4622a03u, 0xa6c314804859365u},
    {Input::kLargest, 2053, {.block = 1024}, 0xd7430fbb7b12e4e7u, 0x40eedbfc637c8f3bu},
    {Input::kLargest, 2053, {.block = 0}, 0xede9b503cb7cc027u, 0x40eedbfc637c8f3bu},
    {Input::kLargest, 1000, {.block = 16}, 0x74690dc20818f69u, 0x6aebd0bf37b3ff35u},
};

}  // namespace tutti

#endif  // TESTS_CODECS_GOLDEN_UINT8_BLOCK_H_
