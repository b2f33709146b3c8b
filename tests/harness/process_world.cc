#include "tests/harness/process_world.h"

#include <sys/eventfd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tutti/bootstrap.h"
#include "tutti/store.h"
#include "tutti/transport.h"

namespace tutti {
namespace {

// Counts the checks that fail in the process of a rank at once, since the test may kill the rank at any time.
class FailedChecks final : public testing::EmptyTestEventListener {
 public:
  explicit FailedChecks(int counter) : counter_(counter) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed()) eventfd_write(counter_, 1);
  }

 private:
  const int counter_;
};

absl::Status RunRank(Rank rank, int size, const std::string& directory, const CommunicatorOptions& options,
                     const ProcessWorld::Body& body, const ProcessWorld::Wrap& wrap, const UcxOptions& ucx,
                     const ProcessWorld::Report& report) {
  absl::StatusOr<std::shared_ptr<Store>> store = MakeFileStore(directory, rank);
  if (!store.ok()) return store.status();
  absl::StatusOr<std::unique_ptr<Transport>> transport = MakeUcxTransport(ucx, {.region_bytes = std::int64_t{1} << 30});
  if (!transport.ok()) return transport.status();
  if (wrap != nullptr) *transport = wrap(*std::move(transport));
  Bootstrap bootstrap;
  bootstrap.identity.rank = bootstrap.identity.local_rank = rank;
  bootstrap.identity.size = bootstrap.identity.local_size = size;
  bootstrap.store = *store;
  absl::StatusOr<std::unique_ptr<Communicator>> communicator =
      Communicator::Create(bootstrap, *std::move(transport), options);
  if (!communicator.ok()) return communicator.status();
  body(**communicator, report);
  return absl::OkStatus();
}

}  // namespace

ProcessWorld::ProcessWorld(int size, const CommunicatorOptions& options, const Body& body, const Wrap& wrap,
                           int ranks_per_node) {
  std::string pattern = (std::filesystem::temp_directory_path() / "tutti_process_world_XXXXXX").string();
  directory_ = mkdtemp(pattern.data());
  failed_checks_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  processes_ = std::make_unique<RankProcesses>(size, [&](Rank rank, Lines& lines) {
    testing::UnitTest::GetInstance()->listeners().Append(new FailedChecks(failed_checks_.get()));
    const testing::ScopedTrace trace(__FILE__, __LINE__, absl::StrCat("in the process of rank ", rank));
    const auto report = [&lines](const std::string& line) { lines.Say(line); };
    UcxOptions ucx;
    if (ranks_per_node > 0) ucx.node = absl::StrCat("node ", rank / ranks_per_node);
    const absl::Status status = RunRank(rank, size, directory_, options, body, wrap, ucx, report);
    if (!status.ok()) report(status.ToString());
    return status.ok() ? 0 : 1;
  });
}

ProcessWorld::~ProcessWorld() {
  processes_.reset();
  eventfd_t failed = 0;
  eventfd_read(failed_checks_.get(), &failed);
  EXPECT_EQ(failed, 0U) << "checks have failed in the processes of ranks; their messages are above";
  std::filesystem::remove_all(directory_);
}

std::string ProcessWorld::NextLine(Rank rank) {
  return processes_->Hear(rank, absl::Now() + absl::Minutes(1)).value_or("");
}

}  // namespace tutti
