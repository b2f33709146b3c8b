// Connect, which makes a communicator from a launcher's environment in one call.
#ifndef TUTTI_TORCH_CONNECT_H_
#define TUTTI_TORCH_CONNECT_H_

#include <memory>

#include "tutti/bootstrap.h"
#include "tutti/communicator.h"
#include "tutti/torch/errors.h"

namespace tutti::nn {

// Connects the ranks that `tutti launch`, torchrun, mpirun or srun started; without a launcher, this process is a world
// of one. Throws when the ranks cannot be reached within options.timeout (TUTTI_TIMEOUT when not set).
inline std::unique_ptr<Communicator> Connect(const CommunicatorOptions& options = {}) {
  return ValueOrThrow(Communicator::Create(ValueOrThrow(BootstrapFromEnvironment(options.timeout)), options));
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_CONNECT_H_
