// Linked into a program, lets it take the fake CUDA and NCCL for those of the machine from its start.
#include "tests/harness/fake_device.h"

namespace tutti {
namespace {

[[maybe_unused]] const bool uses_fakes = [] {
  UseFakeDevices();
  return true;
}();

}  // namespace
}  // namespace tutti
