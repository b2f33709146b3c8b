#include "docs/examples/fashion_mnist.h"

#include <zlib.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

namespace fashion_mnist {
namespace {

constexpr int kSide = 28;
constexpr double kMean = 0.2860;       // of all training pixels, from 0 to 1
constexpr double kDeviation = 0.3530;  // the standard deviation of the same pixels

struct CloseFile {
  void operator()(gzFile file) const { gzclose(file); }
};

// An IDX file: two zero bytes, the type (8: unsigned bytes), the number of dimensions, each of them in four bytes with
// the highest first, and the elements. http://yann.lecun.com/exdb/mnist
torch::Tensor ReadIdx(const std::string& path, int num_dimensions) {
  const std::unique_ptr<gzFile_s, CloseFile> file(gzopen(path.c_str(), "rb"));
  if (file == nullptr) {
    throw std::runtime_error("cannot open " + path + ": " + std::strerror(errno) +
                             "\nThe data set is missing: install it with `apt-get install dataset-fashion-mnist`, or "
                             "pass --data with a directory that holds the four .gz files of "
                             "https://github.com/zalandoresearch/fashion-mnist");
  }
  const auto read = [&](std::uint8_t* bytes, std::int64_t count) {
    if (gzread(file.get(), bytes, static_cast<unsigned>(count)) != count) {
      throw std::runtime_error(path + " is damaged: it ends too early or is no gzip file; install it anew");
    }
  };
  std::uint8_t header[4];
  read(header, 4);
  if (header[0] != 0 || header[1] != 0 || header[2] != 8 || header[3] != num_dimensions) {
    throw std::runtime_error(path + " is no IDX file of unsigned bytes in " + std::to_string(num_dimensions) +
                             " dimensions");
  }
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  for (int d = 0; d < num_dimensions; ++d) {
    std::uint8_t big_endian[4];
    read(big_endian, 4);
    std::int64_t length = 0;
    for (const std::uint8_t byte : big_endian) length = length << 8 | byte;
    shape.push_back(length);
    elements *= length;
  }
  if (elements > std::int64_t{1} << 30) throw std::runtime_error(path + " claims more than 1 GiB of elements");
  torch::Tensor tensor = torch::empty(shape, torch::kUInt8);
  read(tensor.data_ptr<std::uint8_t>(), elements);
  return tensor;
}

}  // namespace

std::pair<torch::Tensor, torch::Tensor> Images::Batch(const torch::Tensor& indices) const {
  const torch::Tensor chosen = pixels.index_select(0, indices).to(torch::kFloat32).div_(255);
  return {chosen.sub_(kMean).div_(kDeviation).unsqueeze(1), labels.index_select(0, indices)};
}

Images Load(Part part, const std::string& directory) {
  const std::string prefix = directory + (part == Part::kTrain ? "/train" : "/t10k");
  Images images{ReadIdx(prefix + "-images-idx3-ubyte.gz", 3), ReadIdx(prefix + "-labels-idx1-ubyte.gz", 1)};
  if (images.pixels.size(0) != images.size() || images.pixels.size(1) != kSide || images.pixels.size(2) != kSide) {
    throw std::runtime_error(prefix + "-*.gz: images and labels do not belong together");
  }
  images.labels = images.labels.to(torch::kInt64);
  return images;
}

}  // namespace fashion_mnist
