// WeightsWatch notices that weights were written, or moved, by anything but the strategy that exchanges them.
#ifndef TUTTI_TORCH_WEIGHTS_WATCH_H_
#define TUTTI_TORCH_WEIGHTS_WATCH_H_

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace tutti::nn {

// torch counts the writes of a tensor, but not those through `.data()`, as torch::optim::SGD makes them; so
// WeightsWatch also looks at some elements of every parameter, but for those on GPUs, for which the host would have to
// wait: there writes through `.data()` go unnoticed, and several writes of one tensor until the second backward after
// them (FindWrittenAgain). Parameters must have no gaps between their elements.
class WeightsWatch {
 public:
  static constexpr int kNone = -1;

  explicit WeightsWatch(std::vector<torch::Tensor> parameters)
      : parameters_(std::move(parameters)), seen_(parameters_.size()) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) seen_[i].place = parameters_[i].const_data_ptr();
  }

  // Takes the present weights for right.
  void Remember() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      seen_[i].writes = seen_[i].writes_before_backward = parameters_[i]._version();
      seen_[i].sample = SampleOf(parameters_[i]);
    }
  }

  // A parameter that lies elsewhere than when the watch was created, or kNone.
  int FindMoved() const {
    return Find(
        [](const torch::Tensor& parameter, const Seen& seen) { return parameter.const_data_ptr() != seen.place; });
  }

  // A parameter that was written since Remember, or kNone. Weights that were replaced and put back, as for an
  // evaluation with averaged weights, count as unwritten: they were written more than once, and the elements looked at
  // are unchanged.
  int FindWritten() const {
    return Find([](const torch::Tensor& parameter, const Seen& seen) {
      return parameter._version() == seen.writes + 1 || SampleOf(parameter) != seen.sample;
    });
  }

  // Called before each backward. A parameter on a GPU that was written since Remember, before the last backward and
  // again before this one, or kNone. An optimizer does so that the strategy does not know, also one that writes a
  // weight more than once in a step, as AdamW does; so do evaluations with averaged weights before two backwards in a
  // row.
  int FindWrittenAgain() {
    const int found = Find([](const torch::Tensor& parameter, const Seen& seen) {
      return !parameter.is_cpu() && seen.writes_before_backward > seen.writes &&
             parameter._version() > seen.writes_before_backward;
    });
    if (found != kNone) return found;
    for (std::size_t i = 0; i < parameters_.size(); ++i) seen_[i].writes_before_backward = parameters_[i]._version();
    return kNone;
  }

 private:
  struct Seen {
    const void* place = nullptr;
    std::int64_t writes = 0;                  // at Remember
    std::int64_t writes_before_backward = 0;  // at the last FindWrittenAgain, or at Remember
    std::uint64_t sample = 0;
  };

  // A hash of elements at equal distances, the first and the last among them: so few that they cost a step with many
  // parameters next to nothing, and enough to notice an optimizer, which changes nearly all elements.
  static std::uint64_t SampleOf(const torch::Tensor& parameter) {
    if (!parameter.is_cpu()) return 0;
    constexpr std::int64_t kElements = 16;
    const auto* const memory = static_cast<const char*>(parameter.const_data_ptr());
    const std::int64_t last = parameter.numel() - 1;
    const std::size_t width = parameter.element_size();
    std::uint64_t hash = 0;
    for (std::int64_t k = 0; k < std::min(kElements, last + 1); ++k) {
      const std::int64_t at = last < kElements ? k : last * k / (kElements - 1);
      std::uint64_t element = 0;
      std::memcpy(&element, memory + static_cast<std::size_t>(at) * width, std::min(width, sizeof(element)));
      hash = (hash ^ element) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 32;
    }
    return hash;
  }

  template <typename Differs>
  int Find(const Differs& differs) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (differs(parameters_[i], seen_[i])) return static_cast<int>(i);
    }
    return kNone;
  }

  std::vector<torch::Tensor> parameters_;
  std::vector<Seen> seen_;
};

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_WEIGHTS_WATCH_H_
