// tutti bench --device cuda, in this process, whose GPUs and NCCL are fakes; and what it says where there is no GPU.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "bindings/cli/bench/device.h"
#include "bindings/cli/bench/nccl/raw_nccl.h"
#include "bindings/cli/command.h"
#include "comm/device_parts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cli/command_run.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/fake_nccl.h"
#include "transports/nccl/maker.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;

class BenchOnDevicesTest : public testing::Test {
 protected:
  struct Result {
    absl::StatusOr<int> exit_code = 0;
    std::string out;
    nlohmann::json rows = nlohmann::json::array();
  };

  BenchOnDevicesTest() { UseFakes(FakeNccl::Table()); }
  ~BenchOnDevicesTest() override {
    SetPartsOfThisProcess(nullptr);
    SetNcclOfThisProcess(nullptr);
    unsetenv("TUTTI_TRANSPORT");  // which the command sets, for itself
  }

  // `library`, which lives on: the NCCL of Tutti, and the raw one.
  void UseFakes(const nccl::Library& library) {
    maker_ = std::make_unique<nccl::NcclMaker>(library, FakeCuda::Table());
    UseFakeDevices();
    parts_ = *PartsOfThisProcess();
    parts_.native = maker_.get();
    SetPartsOfThisProcess(&parts_);
    software_ = {.nccl = &library, .cuda = &FakeCuda::Table()};
    SetNcclOfThisProcess(&software_);
  }

  // `tutti bench ARGUMENTS --device cuda`, whose ranks are threads.
  static Result Run(const std::string& arguments) {
    const ScratchFile file(".json");
    CLI::App app;
    Invocation invocation;
    AddBench(app, invocation);
    app.parse("bench " + arguments + " --device cuda --transport inproc --warmup 1 --json " + file.path());
    testing::internal::CaptureStdout();
    Result result;
    result.exit_code = invocation.action();
    result.out = testing::internal::GetCapturedStdout();
    if (result.exit_code.ok()) result.rows = nlohmann::json::parse(file.Read())["rows"];
    return result;
  }

 private:
  std::unique_ptr<nccl::NcclMaker> maker_;
  DeviceParts parts_;
  NcclSoftware software_;
};

TEST_F(BenchOnDevicesTest, PrintsTheColumnsOfNcclTestsAndTheTimeOfTheHost) {
  const Result run = Run("all_reduce --ranks 2 -b 4 -e 4K -f 1024 --iters 40");
  ASSERT_EQ(run.exit_code.value_or(-1), 0) << run.exit_code.status() << run.out;
  EXPECT_THAT(run.out, testing::ContainsRegex(
                           "size +count +type +op +time +algbw +busbw +#wrong +p50 +p99 +max +host +schedule"));
  EXPECT_THAT(run.out, HasSubstr("memory of GPUs, in place"));
  EXPECT_THAT(run.out, HasSubstr("local rank modulo the number of GPUs"));
  EXPECT_THAT(run.out, testing::ContainsRegex("# rank 1 on .*: GPU 1 of 8, "));
  EXPECT_THAT(run.out, HasSubstr("# calls travel by nccl: all ranks have NCCL, and a GPU each\n"));
  EXPECT_THAT(run.out, HasSubstr("# every result was right"));
  ASSERT_EQ(run.rows.size(), 2U);
  for (const nlohmann::json& row : run.rows) {
    EXPECT_EQ(row["device"], "cuda");
    EXPECT_EQ(row["buffers"], "device");
    EXPECT_EQ(row["library"], "tutti");
    EXPECT_EQ(row["schedule"], "native");
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_EQ(row["calls"], 48);  // windows of 16
    EXPECT_GT(row["p50_us"].get<double>(), 0);
    EXPECT_GT(row["host_us"].get<double>(), 0);
    EXPECT_GT(row["predicted_us"].get<double>(), 0);
  }
}

// Both make equally many calls, and what raw NCCL calls is no call of Tutti's communicator.
TEST_F(BenchOnDevicesTest, MeasuresRawNcclInTurnsAndWithoutTheEngine) {
  const FakeCudaCounts before = FakeCuda::Counts();
  const Result run = Run("all_reduce --ranks 2 -b 4K -e 4K --iters 32 --peer nccl");
  const FakeCudaCounts counts = FakeCuda::Counts() - before;
  ASSERT_EQ(run.exit_code.value_or(-1), 0) << run.exit_code.status() << run.out;
  ASSERT_EQ(run.rows.size(), 2U);
  EXPECT_EQ(run.rows[0]["library"], "tutti");
  EXPECT_EQ(run.rows[1]["library"], "nccl");
  EXPECT_TRUE(run.rows[1]["schedule"].is_null());
  EXPECT_TRUE(run.rows[1]["predicted_us"].is_null());
  EXPECT_GT(run.rows[1]["host_us"].get<double>(), 0);
  for (const nlohmann::json& row : run.rows) EXPECT_EQ(row["wrong"], 0) << row;
  EXPECT_THAT(run.out, HasSubstr("(raw NCCL)"));
  // Of each of two ranks and two callers: two checked calls, a window to warm up, and two that count.
  EXPECT_EQ(counts.collectives, 2 * 2 * (2 + 16 + 32));
  EXPECT_EQ(FakeNccl::LivingCommunicators(), 0);
}

TEST_F(BenchOnDevicesTest, MeasuresEveryCollectiveRightly) {
  for (const char* how : {"--ranks 3", "--ranks 3 --out-of-place", "--ranks 2 --rewrite", "--ranks 1",
                          "--ranks 3 --dtype bf16 --op avg", "--ranks 2 --op premul_sum"}) {
    const Result run = Run(std::string("all -b 0 -e 40K -f 10000 --iters 3 --peer nccl ") + how);
    ASSERT_EQ(run.exit_code.value_or(-1), 0) << how << run.exit_code.status() << run.out;
    EXPECT_GT(run.rows.size(), 30U) << how;
    for (const nlohmann::json& row : run.rows) EXPECT_EQ(row["wrong"], 0) << how << ": " << row;
    EXPECT_THAT(run.out, HasSubstr("# send_recv\n"));
    EXPECT_THAT(run.out, HasSubstr("# all_to_all_v of NCCL is not measured: NCCL has no all_to_all_v"));
    EXPECT_THAT(run.out, testing::Not(HasSubstr("barrier")));
  }
}

TEST_F(BenchOnDevicesTest, MeasuresTheScheduleItWasTold) {
  const Result run = Run("all_reduce --ranks 3 -b 4K -e 4K --iters 3 --schedule ring --op max --peer nccl");
  ASSERT_EQ(run.exit_code.value_or(-1), 0) << run.exit_code.status() << run.out;
  ASSERT_EQ(run.rows.size(), 1U);
  EXPECT_EQ(run.rows[0]["schedule"], "ring");
  EXPECT_EQ(run.rows[0]["wrong"], 0);
  EXPECT_THAT(run.out, HasSubstr("# all_reduce of NCCL is not measured: max of f32 by NCCL ignores NaN"));
}

TEST_F(BenchOnDevicesTest, TellsThatAScheduleNamedForHostsWasNotTaken) {
  // A process reads the configuration once, so that this test has one of its own.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run_with_named_schedules = [] {
    setenv("TUTTI_SCHEDULE", "all_reduce=direct,broadcast=native", 1);
    const Result run = Run("all_reduce,broadcast --ranks 2 -b 4K -e 4K --iters 3");
    for (const nlohmann::json& row : run.rows) {
      std::fprintf(stderr, "%s %s;", row["collective"].dump().c_str(), row["schedule_chosen"].dump().c_str());
    }
    std::exit(run.exit_code.value_or(1));
  };
  EXPECT_EXIT(run_with_named_schedules(), testing::ExitedWithCode(0), "\"all_reduce\" true;\"broadcast\" false;");
}

TEST_F(BenchOnDevicesTest, MeasuresSumsInMessagesOfACodec) {
  const Result run = Run("all_reduce --ranks 3 -b 4 -e 40K -f 10000 --iters 3 --codec uint8_block --peer nccl");
  ASSERT_EQ(run.exit_code.value_or(-1), 0) << run.exit_code.status() << run.out;
  ASSERT_EQ(run.rows.size(), 4U);
  for (const nlohmann::json& row : run.rows) {
    const bool is_tutti = row["library"] == "tutti";
    EXPECT_EQ(row["wrong"], 0) << row;
    EXPECT_EQ(row["codec"], is_tutti ? nlohmann::json("uint8_block") : nlohmann::json(nullptr));
    EXPECT_EQ(row["calls"], 3);
  }
  EXPECT_THAT(run.out, HasSubstr("codec=uint8_block"));
  EXPECT_THAT(run.out, HasSubstr("equal on all ranks where a codec encoded it"));
}

// An NCCL that leaves out the last ten elements.
TEST_F(BenchOnDevicesTest, CountsWrongElementsOfTuttiAndOfNccl) {
  static const nccl::Library& forgetful = *new nccl::Library([] {
    nccl::Library library = FakeNccl::Table();
    library.all_reduce = [](const void* src, void* dst, std::size_t count, nccl::DataType type, nccl::RedOp op,
                            nccl::Comm comm, CUstream_st* stream) {
      return FakeNccl::Table().all_reduce(src, dst, count - 10, type, op, comm, stream);
    };
    return library;
  }());
  UseFakes(forgetful);
  const Result run = Run("all_reduce --ranks 2 -b 4K -e 4K --iters 1 --out-of-place --peer nccl");
  ASSERT_EQ(run.exit_code.value_or(-1), 1) << run.exit_code.status() << run.out;
  ASSERT_EQ(run.rows.size(), 2U);
  for (const nlohmann::json& row : run.rows) EXPECT_EQ(row["wrong"], 2 * 2 * 10) << row;  // ranks, checks
  EXPECT_THAT(run.out, HasSubstr("# WRONG: 80 elements"));
}

// An NCCL that gathers less than it was told, so that every rank has the right end of its own chunk alone.
TEST_F(BenchOnDevicesTest, CountsElementsThatDifferBetweenRanks) {
  static const nccl::Library& forgetful = *new nccl::Library([] {
    nccl::Library library = FakeNccl::Table();
    library.all_gather = [](const void* src, void* dst, std::size_t count, nccl::DataType type, nccl::Comm comm,
                            CUstream_st* stream) {
      return FakeNccl::Table().all_gather(src, dst, count - 10, type, comm, stream);
    };
    return library;
  }());
  UseFakes(forgetful);
  const Result run = Run("all_reduce --ranks 2 -b 4K -e 4K --iters 1 --codec bf16");
  ASSERT_EQ(run.exit_code.value_or(-1), 1) << run.exit_code.status() << run.out;
  EXPECT_GT(run.rows[0]["wrong"], 0);
}

TEST_F(BenchOnDevicesTest, RefusesWhatGpusDoNotHave) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"barrier", "--device cuda: a barrier has no buffers"},
      {"all_reduce --buffers private", "--buffers private: memory of GPUs is of one kind; leave --buffers out"},
      {"all_reduce --schedule direct", "which is not mapped on this transport (--device cuda); valid: "},
      {"all_reduce --ranks 9",
       "--device cuda: 9 ranks, and 8 GPUs: NCCL takes two ranks on one GPU only from "
       "processes with different NCCL_HOSTID"},
  };
  for (const auto& [arguments, answer] : mistakes) {
    const Result run = Run(arguments);
    EXPECT_EQ(run.exit_code.status().code(), absl::StatusCode::kInvalidArgument) << arguments;
    EXPECT_THAT(std::string(run.exit_code.status().message()), HasSubstr(answer)) << arguments;
    EXPECT_EQ(run.out, "") << arguments;
  }
}

TEST_F(BenchOnDevicesTest, RanksOfANodeTakeItsGpusInTurns) {
  EXPECT_EQ(DeviceOf(3, 8), 3);
  EXPECT_EQ(DeviceOf(3, 2), 1);
  EXPECT_EQ(DeviceOf(3, 1), 0);
}

TEST_F(BenchOnDevicesTest, AnErrorOfJoiningTellsHowToShareAGpu) {
  const absl::Status error = absl::InternalError("duplicate");
  EXPECT_EQ(WithHintOnSharing(error, {.size = 4, .local_size = 2}, 2), error);
  const absl::Status hinted = WithHintOnSharing(error, {.size = 4, .local_size = 4}, 2);
  EXPECT_EQ(hinted.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(hinted.message()), HasSubstr("duplicate; 4 ranks of this node see 2 GPUs"));
  EXPECT_THAT(std::string(hinted.message()), HasSubstr("NCCL_HOSTID"));
}

// Asked in a child process, which has the fakes of this one.
TEST_F(BenchOnDevicesTest, LooksForGpusInAChildProcess) {
  EXPECT_EQ(CheckDevicesOfRanksToStart(8), absl::OkStatus());
  const absl::Status refused = CheckDevicesOfRanksToStart(9);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--device cuda: 9 ranks, and 8 GPUs"));
}

// The reason is the one that `tutti info` gives. Neither rows nor the launcher's message about failed ranks are
// printed.
TEST(BenchWithoutDevicesTest, SaysWhyThereIsNoGpu) {
  const CommandRun info = RunTutti("info");
  const auto reason = [&](const std::string& what) {
    const std::string label = "\n  " + what + std::string(23 - what.size(), ' ');
    const std::size_t at = info.out.find(label);
    return at == std::string::npos
               ? ""
               : info.out.substr(at + label.size(), info.out.find('\n', at + 1) - at - label.size());
  };
  if (info.out.find("\n  GPU 0") != std::string::npos) GTEST_SKIP() << "this machine has a GPU";
  ASSERT_NE(reason("CUDA"), "") << info.out;
  for (const char* transport : {"auto", "inproc"}) {
    const CommandRun run = RunTutti(std::string("bench all_reduce --device cuda --transport ") + transport);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(run.err, "tutti: --device cuda: " + reason("CUDA") + "\n");
  }
  const CommandRun launched = RunTutti(std::string("launch -n 1 -- ") + kTutti + " bench all_reduce --device cuda");
  EXPECT_EQ(launched.exit_code, 2);
  EXPECT_THAT(launched.err, HasSubstr("tutti: --device cuda: " + reason("CUDA")));
  const CommandRun peer = RunTutti("bench all_reduce --peer nccl");
  EXPECT_EQ(peer.exit_code, 2);
  EXPECT_EQ(peer.err, "tutti: --peer nccl: NCCL works on the memory of GPUs; add --device cuda\n");
}

}  // namespace
}  // namespace tutti::cli
