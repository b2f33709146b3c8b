// Files of NumPy (.npy) that hold one array of float32:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#ifndef TUTTI_BINDINGS_CLI_REPLAY_NPY_H_
#define TUTTI_BINDINGS_CLI_REPLAY_NPY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tutti::cli {

struct Array {
  std::vector<std::int64_t> shape;  // the last index moves fastest
  std::vector<float> values;

  std::string ShapeText() const;  // text such as "(50, 4, 1000)"
};

// The array in `bytes`, the contents of a file of version 1.0, 2.0 or 3.0. InvalidArgument says what is wrong and,
// where NumPy can mend the file, how, but does not name the file.
absl::StatusOr<Array> ParseNpy(absl::string_view bytes);
// The bytes of a file of version 1.0.
std::string FormatNpy(const Array& array);

// Read and write a file; errors name the file.
absl::StatusOr<Array> ReadNpy(const std::string& path);
absl::Status WriteNpy(const std::string& path, const Array& array);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_REPLAY_NPY_H_
