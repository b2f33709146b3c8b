// The instruction sets our Highway kernels are compiled for; include before any hwy header.
#ifndef TUTTI_KERNELS_HIGHWAY_TARGETS_H_
#define TUTTI_KERNELS_HIGHWAY_TARGETS_H_

// On x86: AVX-512, AVX2, and the compiler's baseline. The sets in between would double the code and the build time for
// processors older than 2013. On ARM: NEON alone, because vectors of SVE, whose length the compiler does not know, may
// not be members of a class, as vectors are in some kernels.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#endif  // TUTTI_KERNELS_HIGHWAY_TARGETS_H_
