// Golden vectors of the codec minmax_uint8; golden.h says what they are.
#ifndef TESTS_CODECS_GOLDEN_MINMAX_UINT8_H_
#define TESTS_CODECS_GOLDEN_MINMAX_UINT8_H_

#include "tests/codecs/golden/golden.h"

namespace tutti {

inline constexpr GoldenMessage kMinMaxUint8Golden[] = {
    {Input::kZeros, 5, {.block = 1024}, 0xe5d4783d39c80edeu, 0xee85fafd354b0935u},
    {Input::kZeros, 2053, {.block = 1024}, 0xfdd8285d482011d2u, 0xc381bc20ae858935u},
    {Input::kZeros, 2053, {.block = 0}, 0x53db9189016536d6u, 0xc381bc20ae858935u},
    {Input::kZeros, 1000, {.block = 16}, 0x355ad6a74bbc212du, 0x94eb5aa73e186ba5u},
    {Input::kConstant, 5, {.block = 1024}, 0x98579dea681cb53cu, 0x419f50495a6b378bu},
    {Input::kConstant, 2053, {.block = 1024}, 0xe31ab7c85525f86eu, 0x7ae4411d41a278bu},
    {Input::kConstant, 2053, {.block = 0}, 0x5257d0bf20d308aau, 0x7ae4411d41a278bu},
    {Input::kConstant, 1000, {.block = 16}, 0xbfd0737aeca2d389u, 0x1580e40b6d6676d5u},
    {Input::kNegativeConstant, 5, {.block = 1024}, 0x45ff93a8ccd3f21au, 0xb553101a2c786ff5u},
    {Input::kNegativeConstant, 2053, {.block = 1024}, 0x698795a041026412u, 0xc381bc20ae858935u},
    {Input::kNegativeConstant, 2053, {.block = 0}, 0xfbe33689e973e576u, 0xc381bc20ae858935u},
    {Input::kNegativeConstant, 1000, {.block = 16}, 0x6de70c5d9bc7bdadu, 0x94eb5aa73e186ba5u},
    {Input::kUniform, 5, {.block = 1024}, 0x5f0ba638d4a2f3f9u, 0xc502320635c0c9d6u},
    {Input::kUniform, 2053, {.block = 1024}, 0xebfccaaa13fc996eu, 0x8f972d196502b9e3u},
    {Input::kUniform, 2053, {.block = 0}, 0x43f1505b297882d1u, 0xb22716dc492c0132u},
    {Input::kUniform, 1000, {.block = 16}, 0x1d301f1f19f37eeu, 0xa1fed0ecffe4172bu},
    {Input::kBellShaped, 5, {.block = 1024}, 0x7baba823475778d8u, 0xe1d4e28213938cdbu},
    {Input::kBellShaped, 2053, {.block = 1024}, 0x389786d0558b4be2u, 0xf2e3962b9fba1a56u},
    {Input::kBellShaped, 2053, {.block = 0}, 0x6cd8718cc762d15cu, 0x165a8d073fc8921du},
    {Input::kBellShaped, 1000, {.block = 16}, 0x91f31a2f68e3d510u, 0x9e6efd5dffad6ac3u},
    {Input::kPositive, 5, {.block = 1024}, 0x992a9e2947060943u, 0xeea33a1e9f2953dcu},
    {Input::kPositive, 2053, {.block = 1024}, 0xb536661949a69a3au, 0x8e5d2ac0c27eb694u},
    {Input::kPositive, 2053, {.block = 0}, 0xd02b6ad4b1c2677cu, 0x2c9b55a9d579a0ffu},
    {Input::kPositive, 1000, {.block = 16}, 0x4ac4ee9e599c868fu, 0x652cc99e10e50b8fu},
    {Input::kNegative, 5, {.block = 1024}, 0x614004e0a7cd7a16u, 0x7822ae4910ce4d11u},
    {Input::kNegative, 2053, {.block = 1024}, 0x15bddf71adfc2129u, 0x5a2096cf3ef2b16u},
    {Input::kNegative, 2053, {.block = 0}, 0xdf9e4a88d8f09bbu, 0x6d12fba9ae8b2d4au},
    {Input::kNegative, 1000, {.block = 16}, 0x6d61f2698fbb72bfu, 0x4167d8894a88eddau},
    {Input::kOffset, 5, {.block = 1024}, 0xaf3fb497d10a7a61u, 0x593c188fefc3865au},
    {Input::kOffset, 2053, {.block = 1024}, 0xf2beb07f363b1876u, 0x6bb5c9f2cd663442u},
    {Input::kOffset, 2053, {.block = 0}, 0x6f239e25bbb5e8b5u, 0x6bb5c9f2cd663442u},
    {Input::kOffset, 1000, {.block = 16}, 0x8689e048a3c3d323u, 0x78ba15f2322ac064u},
    {Input::kOutlier, 5, {.block = 1024}, 0xc026d9960f8054f9u, 0x340e6e58feb0032u},
    {Input::kOutlier, 2053, {.block = 1024}, 0xd6169d1af66974f0u, 0x558074cf0fbf064eu},
    {Input::kOutlier, 2053, {.block = 0}, 0xf42bfddaea372595u, 0x707c3b43a4fc77f3u},
    {Input::kOutlier, 1000, {.block = 16}, 0x25f9d3cdb7787abfu, 0x9ba19c909bd0b704u},
    {Input::kManyScales, 5, {.block = 1024}, 0xecc9b52f0895392eu, 0xc1ac83fc432b213du},
    {Input::kManyScales, 2053, {.block = 1024}, 0x7f7952a32a1dbefu, 0x70bb1858cae8e4c5u},
    {Input::kManyScales, 2053, {.block = 0}, 0x78a48bf4051c0ee1u, 0x7a49c213d1363f9fu},
    {Input::kManyScales, 1000, {.block = 16}, 0xbf97b94b6627d866u, 0xaf141c4531554abeu},
    {Input::kSparse, 5, {.block = 1024}, 0x5273818fd865a753u, 0x5596ffad5719e184u},
    {Input::kSparse, 2053, {.block = 1024}, 0x9d9e66c4d034b840u, 0x43dd4b2d41939e4du},
    {Input::kSparse, 2053, {.block = 0}, 0xbda76b37f0b1a87au, 0x348846c77a3fc035u},
    {Input::kSparse, 1000, {.block = 16}, 0x91269f6d7b97c82au, 0xf7a03e2210136dcu},
    {Input::kTiny, 5, {.block = 1024}, 0x2875c02b0700ec02u, 0xc91ec8f9383c6ff1u},
    {Input::kTiny, 2053, {.block = 1024}, 0xa36d9c88213e5911u, 0xc381bc20ae858935u},
    {Input::kTiny, 2053, {.block = 0}, 0xb1e6941a356fa3fdu, 0xc381bc20ae858935u},
    {Input::kTiny, 1000, {.block = 16}, 0x9d7c12e1557803b8u, 0x94eb5aa73e186ba5u},
    {Input::kSubnormal, 5, {.block = 1024}, 0x796c7c4f0a04930u, 0x725c432c68d9df33u},
    {Input::kSubnormal, 2053, {.block = 1024}, 0x827820661d1f634au, 0xc381bc20ae858935u},
    {Input::kSubnormal, 2053, {.block = 0}, 0x6d8346197c5f722u, 0xc381bc20ae858935u},
    {Input::kSubnormal, 1000, {.block = 16}, 0x4d48508655e5f29cu, 0x94eb5aa73e186ba5u},
};

}  // namespace tutti

#endif  // TESTS_CODECS_GOLDEN_MINMAX_UINT8_H_
