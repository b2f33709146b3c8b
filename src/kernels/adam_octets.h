// The functions of adam.h on memory of a device: the same operations in the same order.
#ifndef TUTTI_KERNELS_ADAM_OCTETS_H_
#define TUTTI_KERNELS_ADAM_OCTETS_H_

#include <cmath>
#include <cstdint>

#include "kernels/adam.h"
#include "kernels/reduce_octets.h"

namespace tutti::kernels {

// What all three functions compute for one element.
struct AdamElement {
  TUTTI_HOST_DEVICE float Decayed(float gradient, float weight) const {
    return factors.weight_decay == 0.0f ? gradient : gradient + factors.weight_decay * weight;
  }
  TUTTI_HOST_DEVICE float Blend(float m, float gradient) const {
    return factors.beta1 * m + factors.from_gradient1 * gradient;
  }
  TUTTI_HOST_DEVICE float Moved(float weight, float m, float deviation) const {
    return weight - factors.step_size * m / (deviation + factors.epsilon);
  }

  AdamFactors factors;
};

// An octet of a range of elements of a format, or of f32.
template <class Format>
TUTTI_HOST_DEVICE void LoadLanesOf(const void* range, std::int64_t begin, int count, float (&lanes)[kOctet]) {
  LoadLanes<Format>(static_cast<const typename Format::Element*>(range) + begin, count, lanes);
}

template <class Format>
TUTTI_HOST_DEVICE void StoreLanesOf(const float (&lanes)[kOctet], std::int64_t begin, int count, void* range) {
  StoreLanes<Format>(lanes, count, static_cast<typename Format::Element*>(range) + begin);
}

template <class Format>
struct BlendOctets {
  TUTTI_HOST_DEVICE void At(std::int64_t begin, int count) const {
    float g[kOctet];
    float w[kOctet] = {};
    float momentum[kOctet];
    LoadLanesOf<Format>(gradient, begin, count, g);
    if (adam.factors.weight_decay != 0.0f) LoadLanesOf<Format>(weights, begin, count, w);
    LoadElements(m + begin, count, momentum);
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) g[i] = adam.Blend(momentum[i], adam.Decayed(g[i], w[i]));
    StoreLanesOf<Format>(g, begin, count, gradient);
  }

  AdamElement adam;
  void* gradient;
  const void* weights;
  const float* m;
};

template <class Format>
struct AdamOctets {
  TUTTI_HOST_DEVICE void At(std::int64_t begin, int count) const {
    float w[kOctet];
    float g[kOctet];
    float first[kOctet];
    float second[kOctet];
    LoadLanesOf<Format>(weights, begin, count, w);
    LoadLanesOf<Format>(gradient, begin, count, g);
    LoadElements(m + begin, count, first);
    LoadElements(v + begin, count, second);
    const AdamFactors& factors = adam.factors;
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      const float decayed = adam.Decayed(g[i], w[i]);
      first[i] = adam.Blend(first[i], decayed);
      second[i] = factors.beta2 * second[i] + factors.from_gradient2 * (decayed * decayed);
      w[i] = adam.Moved(w[i], first[i], std::sqrt(second[i]) / factors.correction);
    }
    StoreElements(first, count, m + begin);
    StoreElements(second, count, v + begin);
    StoreLanesOf<Format>(w, begin, count, weights);
  }

  AdamElement adam;
  void* weights;
  const void* gradient;
  float* m;
  float* v;
};

template <class Format>
struct FrozenAdamOctets {
  TUTTI_HOST_DEVICE void At(std::int64_t begin, int count) const {
    float w[kOctet];
    float first[kOctet];
    float second[kOctet];
    LoadLanesOf<Format>(weights, begin, count, w);
    LoadLanesOf<Format>(momentum, begin, count, first);
    LoadElements(v + begin, count, second);
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) w[i] = adam.Moved(w[i], first[i], std::sqrt(second[i]));
    StoreElements(first, count, m + begin);
    StoreLanesOf<Format>(w, begin, count, weights);
  }

  AdamElement adam;
  void* weights;
  const void* momentum;
  float* m;
  const float* v;
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_ADAM_OCTETS_H_
