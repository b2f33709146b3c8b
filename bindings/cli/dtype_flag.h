// Types of elements, as flags name them.
#ifndef TUTTI_BINDINGS_CLI_DTYPE_FLAG_H_
#define TUTTI_BINDINGS_CLI_DTYPE_FLAG_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tutti/dtype.h"

namespace tutti::cli {

// Does what ParseDType does. An error also says how Tutti calls a type that has this name in nccl-tests, PyTorch or C.
absl::StatusOr<DType> ParseDTypeFlag(absl::string_view name);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_DTYPE_FLAG_H_
