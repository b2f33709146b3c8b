// Calls of threads of Python into Tutti, which may wait for other ranks.
#ifndef TUTTI_TORCH_PROCESS_GROUP_WITHOUT_GIL_H_
#define TUTTI_TORCH_PROCESS_GROUP_WITHOUT_GIL_H_

#include <pybind11/pybind11.h>

#include "bindings/torch/process_group/interpreter_exit.h"

namespace tutti::dist {

// Lives while a thread of Python is in a call, without the lock of the interpreter (the GIL). Once the interpreter
// ends, the thread does not come back from the call: taking the lock would end the process with std::terminate.
class WithoutGil {
 public:
  WithoutGil() = default;
  ~WithoutGil() { StayIfInterpreterEnds(); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  const pybind11::gil_scoped_release released_;
};

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_WITHOUT_GIL_H_
