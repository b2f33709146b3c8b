// What Python sees of ModelReplicas.
#ifndef TUTTI_TORCH_PROCESS_GROUP_MODEL_REPLICAS_PYTHON_H_
#define TUTTI_TORCH_PROCESS_GROUP_MODEL_REPLICAS_PYTHON_H_

#include <torch/csrc/utils/pybind.h>

namespace tutti::dist {

// Adds the class ModelReplicas to `module`.
void DefineModelReplicas(pybind11::module_& module);

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_MODEL_REPLICAS_PYTHON_H_
