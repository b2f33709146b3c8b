// The communicators of a process group in a forked child.
#include "bindings/torch/process_group/membership.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "tests/harness/world.h"

namespace tutti::dist {
namespace {

// Called in a child that was forked while a thread of its parent joins the GPUs: true where each call of the group is
// refused.
bool GroupIsRefused(Membership& membership) {
  alarm(60);  // a child that waits for the parent's thread ends
  const auto on_gpu = membership.OnGpu(0, [] { return absl::InternalError("a child joins nobody"); });
  const bool refused = absl::IsFailedPrecondition(on_gpu.status()) &&
                       absl::IsFailedPrecondition(membership.OnHost()->status()) &&
                       absl::IsFailedPrecondition(membership.status());
  membership.Abort("is a child");
  membership.End();
  return refused;
}

TEST(MembershipTest, AForkedChildWaitsForNoThreadOfItsParent) {
  RunWorld(1, [](Communicator& world) {
    Membership membership(std::shared_ptr<Communicator>(&world, [](Communicator*) {}));
    const auto joined = membership.OnGpu(0, [&]() -> absl::StatusOr<std::shared_ptr<Communicator>> {
      const pid_t child = fork();
      if (child == 0) _exit(GroupIsRefused(membership) ? 0 : 1);
      int status = -1;
      EXPECT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
      return absl::UnavailableError("no GPU");
    });
    EXPECT_TRUE(absl::IsUnavailable(joined.status()));
    EXPECT_TRUE(world.status().ok());
  });
}

}  // namespace
}  // namespace tutti::dist
