// Sums numbers over all ranks: tutti launch -n 4 -- all_reduce
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "tutti/communicator.h"

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

int main() {
  // [all_reduce]
  const absl::StatusOr<tutti::Bootstrap> job = tutti::BootstrapFromEnvironment();  // who am I?
  if (!job.ok()) return Fail(job.status());
  const absl::StatusOr<std::unique_ptr<tutti::Communicator>> world = tutti::Communicator::Create(*job);
  if (!world.ok()) return Fail(world.status());
  const absl::StatusOr<tutti::Buffer> memory = (*world)->Allocate(1000 * sizeof(float));  // peers can map it
  if (!memory.ok()) return Fail(memory.status());
  float* const numbers = memory->as<float>().data();
  std::fill_n(numbers, 1000, static_cast<float>((*world)->rank() + 1));
  tutti::Work sum = (*world)->AllReduce(numbers, numbers, 1000, tutti::DType::kF32, tutti::ReduceOp::kSum);
  if (const absl::Status status = sum.Wait(); !status.ok()) return Fail(status);
  // [all_reduce]
  const int size = (*world)->size();
  std::printf("rank %d of %d: every number is now %g\n", (*world)->rank(), size, static_cast<double>(numbers[0]));
  return std::all_of(numbers, numbers + 1000, [&](float x) { return x == static_cast<float>(size * (size + 1) / 2); })
             ? 0
             : Fail(absl::InternalError("the sum is wrong"));
}
