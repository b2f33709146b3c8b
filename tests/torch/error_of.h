#ifndef TUTTI_TESTS_TORCH_ERROR_OF_H_
#define TUTTI_TESTS_TORCH_ERROR_OF_H_

#include <torch/torch.h>

#include <functional>
#include <string>

namespace tutti::nn {

// The text of the exception that f throws; "" when f throws none.
inline std::string ErrorOf(const std::function<void()>& f) {
  try {
    f();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

}  // namespace tutti::nn

#endif  // TUTTI_TESTS_TORCH_ERROR_OF_H_
