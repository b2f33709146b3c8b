// The Fashion-MNIST data set: 60,000 images of clothes to learn from and 10,000 to test with, in ten classes.
#ifndef DOCS_EXAMPLES_FASHION_MNIST_H_
#define DOCS_EXAMPLES_FASHION_MNIST_H_

#include <torch/torch.h>

#include <string>
#include <utility>

namespace fashion_mnist {

inline constexpr char kDirectory[] = "/usr/share/datasets/fashion-mnist";  // of Debian's dataset-fashion-mnist

struct Images {
  torch::Tensor pixels;  // u8, N x 28 x 28
  torch::Tensor labels;  // i64, N

  std::int64_t size() const { return labels.size(0); }
  Images To(torch::Device device) const { return {pixels.to(device), labels.to(device)}; }
  // The images at `indices`, which are on the same device, normalized: f32, n x 1 x 28 x 28, and their labels.
  std::pair<torch::Tensor, torch::Tensor> Batch(const torch::Tensor& indices) const;
};

enum class Part { kTrain, kTest };

// Reads the gzipped IDX files of https://github.com/zalandoresearch/fashion-mnist. Throws std::runtime_error, which
// says how to get the files when they are missing.
Images Load(Part part, const std::string& directory = kDirectory);

}  // namespace fashion_mnist

#endif  // DOCS_EXAMPLES_FASHION_MNIST_H_
