#include "memory/stuck_devices.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <vector>

#include "base/mutex.h"

namespace tutti {
namespace {

// One for the process. Never destroyed: memory may be freed after the static objects are gone.
struct State {
  Mutex mutex;
  std::map<int, std::vector<CUstream_st*>> given_up TUTTI_GUARDED_BY(mutex);  // streams by device
};

State& TheState() {
  static State& state = *new State;
  return state;
}

}  // namespace

bool HasEnded(const CudaRuntime& cuda, int device, CUstream_st* stream) {
  const CudaDeviceScope scope(cuda, device);
  const CudaOutsideCapture outside(cuda);
  const CudaError error = scope.error() == kCudaSuccess ? cuda.query_stream(stream) : scope.error();
  return error == kCudaSuccess || std::ranges::find(kCudaErrorsOfDevices, error) != std::end(kCudaErrorsOfDevices);
}

void GiveUpStream(int device, CUstream_st* stream) {
  std::fprintf(stderr,
               "tutti: GPU %d does not come to the end of what failed calls have enqueued: until it does, memory there "
               "is left behind, because freeing it would wait\n",
               device);
  State& state = TheState();
  const MutexLock lock(state.mutex);
  state.given_up[device].push_back(stream);
}

bool IsStuck(const CudaRuntime& cuda, int device) {
  State& state = TheState();
  const MutexLock lock(state.mutex);
  const auto found = state.given_up.find(device);
  if (found == state.given_up.end()) return false;
  std::erase_if(found->second, [&](CUstream_st* stream) { return HasEnded(cuda, device, stream); });
  return !found->second.empty();
}

}  // namespace tutti
