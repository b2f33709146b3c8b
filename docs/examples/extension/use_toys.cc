// Uses a schedule, a codec and an algorithm that are not Tutti's own, by their names: tutti launch -n 3 -- use_toys
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"

namespace {

constexpr int kCount = 10000;

absl::Status ExpectAll(const float* values, float expected, absl::string_view what) {
  for (int i = 0; i < kCount; ++i) {
    if (std::abs(values[i] - expected) <= 0.01F * expected) continue;
    return absl::InternalError(absl::StrCat(what, ": element ", i, " is ", values[i], ", expected ", expected));
  }
  return absl::OkStatus();
}

// Rank r has the values r + 1, as gradients and as weights; a step must make averages of them.
absl::Status Step(tutti::Communicator& world, const std::string& strategy) {
  std::vector<float> weights(kCount, static_cast<float>(world.rank() + 1));
  const tutti::Parameter parameter = {.name = "w", .count = kCount, .shape = "10000", .weights = weights.data()};
  const auto sync = tutti::Synchronizer::Create(world, {parameter}, {.strategy = strategy});
  if (!sync.ok()) return sync.status();
  absl::Status status = (*sync)->BeginForward();
  status.Update((*sync)->BeginBackward());
  if (!status.ok()) return status;
  const std::shared_ptr<void> view = (*sync)->GradientView(0);  // null where the strategy exchanges weights
  const auto gradient = static_cast<float*>(view.get());
  if (gradient != nullptr) std::fill_n(gradient, kCount, static_cast<float>(world.rank() + 1));
  (*sync)->MarkReady(0);
  status.Update((*sync)->FinishBackward());
  status.Update((*sync)->BeforeStep());
  status.Update((*sync)->AfterStep());
  if (!status.ok()) return status;
  const float average = static_cast<float>(world.size() + 1) / 2;
  return ExpectAll(gradient == nullptr ? weights.data() : gradient, average, strategy);
}

absl::Status Run() {
  // [names]
  const absl::StatusOr<tutti::Bootstrap> job = tutti::BootstrapFromEnvironment();
  if (!job.ok()) return job.status();
  const auto world = tutti::Communicator::Create(*job, {.schedules = "all_gather=toy"});  // as TUTTI_SCHEDULE would
  if (!world.ok()) return world.status();
  const std::int32_t mine = (*world)->rank();
  std::vector<std::int32_t> all(static_cast<std::size_t>((*world)->size()));
  if (absl::Status status = (*world)->AllGather(&mine, all.data(), 1, tutti::DType::kI32).Wait(); !status.ok()) {
    return status;
  }
  absl::Status status = Step(**world, "bytegrad:codec=toy");
  status.Update(Step(**world, "toy:interval=1"));
  // [names]
  if (status.ok()) std::printf("rank %d of %d has used its own schedule, codec and algorithm\n", mine, all.back() + 1);
  return status;
}

}  // namespace

int main() {
  const absl::Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
