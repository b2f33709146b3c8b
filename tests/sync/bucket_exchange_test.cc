// Buckets in a framework's memory: their averages, moves to other memory, and mistakes of users.
#include "tutti/bucket_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/rank_barrier.h"
#include "tests/sync/bucket_training.h"
#include "tutti/synchronizer.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const ParameterCounts kCounts = {{"a", 700}, {"b", 3}, {"c", 1201}, {"nothing", 0}};

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

// Gradients whose average over `size` ranks is exact: (size + 1) / 2 times the gradients with factor 1.
Gradients ExactGradients(float factor, int size) {
  Gradients gradients;
  for (const auto& [key, count] : kCounts) {
    for (std::int64_t i = 0; i < count; ++i) gradients[key].push_back(factor * static_cast<float>(2 * (i % 7) * size));
  }
  gradients["nothing"] = {};
  return gradients;
}

TEST(BucketExchange, AveragesInAnyMemoryThatMayMove) {
  for (const std::string& transport : WorldTransports()) {
    for (int size : {1, 2, 3, 4, 5}) {
      for (const bool in_arena : {false, true}) {
        RunWorld(size, {.transport = transport}, [&](Communicator& world) {
          BucketTraining training(world, "gradient_allreduce", kCounts, in_arena);
          training.SetBuckets({{"c", "b"}, {"a"}, {"nothing"}});
          for (int step = 0; step < 4; ++step) {
            if (step > 0) training.Move(step % 2);
            const Gradients average = training.Step(ExactGradients(static_cast<float>(world.rank() + 1), size));
            EXPECT_EQ(average, ExactGradients(static_cast<float>(size + 1) / 2, size)) << "step " << step;
          }
          EXPECT_EQ(training.exchange().step(), 4);
        });
      }
    }
  }
}

TEST(BucketExchange, MovesBetweenOrdinaryMemoryAndTheArena) {
  RunWorld(3, [](Communicator& world) {
    const auto exchange = MakeBucketExchange(world, "gradient_allreduce:average=false");
    Buffer arena = *world.Allocate(100 * sizeof(float));
    Floats ordinary(100);
    ASSERT_EQ(exchange->SetBucket(0, {DType::kF32, {{"w", 100}}}, ordinary.data()), absl::OkStatus());
    for (int step = 0; step < 6; ++step) {
      float* const data = step % 2 == 0 ? ordinary.data() : arena.as<float>().data();
      std::fill_n(data, 100, static_cast<float>(world.rank() + step));
      ASSERT_EQ(exchange->Exchange(0, data).Wait(), absl::OkStatus());
      for (int i = 0; i < 100; ++i) ASSERT_EQ(data[i], static_cast<float>(3 + 3 * step)) << "step " << step;
    }
  });
}

// A BucketExchange and a Synchronizer exchange gradients by the same code: residuals and random numbers are equal.
TEST(BucketExchange, GivesTheBitsOfASynchronizer) {
  for (const char* const strategy : {"bytegrad:error_feedback=true", "bytegrad:rounding=stochastic,codec=uint4_block",
                                     "gradient_allreduce:codec=bf16"}) {
    const Training training = [&] {
      Training made;
      made.model = {.counts = {3000}, .bucket_bytes = 1 << 20, .first_bucket_bytes = 1 << 20, .buckets = {{0}}};
      made.strategy = strategy;
      made.initial = Floats(3000, 0);
      made.gradients = RandomGradients(3, 3, 3000);
      return made;
    }();
    RunReplicas(training, [&](Communicator& world, Replica& replica) {
      BucketTraining buckets(world, strategy, {{"w", 3000}});
      buckets.SetBuckets({{"w"}});
      for (const Ranks& gradients : training.gradients) {
        ASSERT_TRUE(replica.Step(gradients[world.rank()], 1).ok());
        EXPECT_EQ(buckets.Step({{"w", gradients[world.rank()]}})["w"], replica.synchronized_gradient()) << strategy;
      }
    });
  }
}

TEST(BucketExchange, CountsTheStepsOfAFrameworkThatCutsItsBucketsWithinAStep) {
  RunWorld(2, [](Communicator& world) {
    const auto exchange = MakeBucketExchange(world, "gradient_allreduce");
    Floats data(4, 1);
    const auto set = [&](int bucket, std::vector<BucketParameter> parameters) {
      ASSERT_EQ(exchange->SetBucket(bucket, {DType::kF32, std::move(parameters)}, data.data()), absl::OkStatus());
    };
    const auto exchange_all = [&](int buckets) {
      for (int bucket = 0; bucket < buckets; ++bucket) {
        ASSERT_EQ(exchange->Exchange(bucket, data.data()).Wait(), absl::OkStatus());
      }
    };
    set(0, {{"a", 1}, {"b", 1}, {"c", 1}});
    exchange_all(1);
    EXPECT_EQ(exchange->step(), 1);
    // As torch's DDP in its second step: each bucket is set when it is full, and leaves at once.
    for (int bucket = 0; bucket < 3; ++bucket) {
      set(bucket, {{std::string(1, "cba"[bucket]), 1}});
      ASSERT_EQ(exchange->Exchange(bucket, data.data()).Wait(), absl::OkStatus());
      EXPECT_EQ(exchange->step(), 2) << bucket;
    }
    exchange_all(3);
    EXPECT_EQ(exchange->step(), 3);
    set(0, {{"a", 1}, {"b", 1}, {"c", 1}});
    set(3, {{"new", 1}});
    ASSERT_EQ(exchange->Exchange(3, data.data()).Wait(), absl::OkStatus());
    EXPECT_EQ(exchange->step(), 3) << "the first exchange of bucket 3, the fourth of no bucket";
    ASSERT_EQ(exchange->Exchange(0, data.data()).Wait(), absl::OkStatus());
    EXPECT_EQ(exchange->step(), 4);
    const std::vector<std::string> states = {*exchange->SaveState()};
    set(1, {{"a", 1}});
    ASSERT_EQ(exchange->LoadState(states), absl::OkStatus());
    set(2, {{"b", 1}, {"c", 1}});
    ASSERT_EQ(exchange->Exchange(2, data.data()).Wait(), absl::OkStatus());
    EXPECT_EQ(exchange->step(), 5);
  });
}

// As torch's DDP does with find_unused_parameters=True, or for parameters of several dtypes.
TEST(BucketExchange, CountsAFirstStepInWhichBucketsAreSetOneAfterTheOther) {
  RunWorld(2, [](Communicator& world) {
    Floats data(1, 1);
    const auto make_steps = [&](BucketExchange& exchange, std::int64_t first) {
      for (std::int64_t step = first; step < first + 3; ++step) {
        for (int bucket = 0; bucket < 3; ++bucket) {
          if (step == first) {
            BucketContents contents = {.dtype = DType::kF32, .parameters = {{std::string(1, "abc"[bucket]), 1}}};
            ASSERT_EQ(exchange.SetBucket(bucket, std::move(contents), data.data()), absl::OkStatus());
          }
          ASSERT_EQ(exchange.Exchange(bucket, data.data()).Wait(), absl::OkStatus());
          EXPECT_EQ(exchange.step(), step + 1) << bucket;
        }
      }
    };
    const auto exchange = MakeBucketExchange(world, "gradient_allreduce");
    make_steps(*exchange, 0);
    const auto resumed = MakeBucketExchange(world, "gradient_allreduce");
    ASSERT_EQ(resumed->LoadState({*exchange->SaveState()}), absl::OkStatus());
    make_steps(*resumed, 3);
  });
}

TEST(BucketExchange, RefusesWhatAreNoGradients) {
  RunWorld(2, [](Communicator& world) {
    for (const char* const strategy : {"decentralized", "async", "low_precision_decentralized"}) {
      const absl::Status refused = BucketExchange::Create(world, strategy).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(MessageOf(refused), AllOf(HasSubstr(strategy), HasSubstr("exchanges weight"),
                                            HasSubstr("or a Synchronizer (tutti/synchronizer.h); or name")));
    }
    EXPECT_THAT(MessageOf(BucketExchange::Create(world, "qadam").status()),
                AllOf(HasSubstr("exchanges momentum"), HasSubstr("with QAdam (tutti/qadam.h")));
    EXPECT_THAT(MessageOf(BucketExchange::Create(world, "bytegrd").status()), HasSubstr("no algorithm is named"));
  });
}

TEST(BucketExchange, NamesTheRankAndTheFieldThatDiffer) {
  RunWorld(3, [](Communicator& world) {
    const bool odd = world.rank() == 1;
    EXPECT_THAT(MessageOf(BucketExchange::Create(world, odd ? "bytegrad" : "gradient_allreduce").status()),
                AllOf(HasSubstr("rank 1"), HasSubstr("strategy")));
    const auto exchange = MakeBucketExchange(world, "gradient_allreduce");
    Floats data(20);
    const auto set = [&](int bucket, const BucketContents& contents, void* at) {
      return MessageOf(exchange->SetBucket(bucket, contents, at));
    };
    EXPECT_THAT(set(0, {DType::kF32, {{"a", odd ? 9 : 10}}}, data.data()),
                AllOf(HasSubstr("rank 1"), HasSubstr("parameter[0]"), HasSubstr("a (9 elements)")));
    EXPECT_THAT(set(0, {odd ? DType::kF16 : DType::kF32, {{"a", 10}}}, data.data()),
                AllOf(HasSubstr("rank 1"), HasSubstr("dtype")));
    EXPECT_THAT(set(0, {DType::kF32, {{"a", 10}}}, odd ? nullptr : data.data()),
                AllOf(HasSubstr("rank 1"), HasSubstr("data is null")));
    EXPECT_EQ(set(0, {DType::kF32, {{"a", 10}}}, data.data()), "");
    EXPECT_THAT(MessageOf(exchange->SetLossScale(odd ? 2 : 4)), AllOf(HasSubstr("rank 1"), HasSubstr("loss scale")));
    EXPECT_EQ(exchange->Exchange(0, data.data()).Wait(), absl::OkStatus());
  });
}

TEST(BucketExchange, NamesWhatIsWrong) {
  RunWorld(2, [](Communicator& world) {
    const auto exchange = MakeBucketExchange(world, "bytegrad");
    Floats data(20);
    const auto set = [&](int bucket, const BucketContents& contents) {
      return MessageOf(exchange->SetBucket(bucket, contents, data.data()));
    };
    EXPECT_THAT(set(1, {}), HasSubstr("bucket 1 is not in 0…0"));
    EXPECT_THAT(set(-1, {}), HasSubstr("bucket -1 is not in 0…0"));
    EXPECT_THAT(set(0, {static_cast<DType>(99), {}}), HasSubstr("dtype 99 must be in"));
    EXPECT_THAT(set(0, {DType::kF32, {{"a", 4}, {"a", 4}}}), HasSubstr("bucket 0 holds parameter a twice"));
    EXPECT_THAT(set(0, {DType::kF32, {{"a", -1}}}), HasSubstr("parameter a: count -1 is not in 0…"));
    EXPECT_THAT(set(0, {DType::kF32, {{"a", std::numeric_limits<std::int64_t>::max()}}}), HasSubstr("at most"));
    EXPECT_THAT(set(0, {DType::kI32, {{"a", 4}}}), HasSubstr("gradients of i32 cannot be encoded"));
    EXPECT_EQ(exchange->bucket_count(), 0);
    EXPECT_THAT(MessageOf(exchange->Exchange(0, data.data()).Wait()), HasSubstr("bucket 0 is not set"));

    EXPECT_EQ(set(0, {DType::kF32, {{"a", 4}, {"b", 5}}}), "");
    EXPECT_NE(exchange->number(0), 0u);
    EXPECT_THAT(set(0, {DType::kF32, {{"a", 5}}}), HasSubstr("parameter a: count 5 must stay 4"));
    EXPECT_THAT(MessageOf(exchange->Exchange(0, nullptr).Wait()), HasSubstr("data of bucket 0 is null"));
    EXPECT_THAT(MessageOf(exchange->Exchange(0, data.data(), -absl::Seconds(1)).Wait()), HasSubstr("timeout"));
    EXPECT_EQ(exchange->Exchange(0, data.data()).Wait(), absl::OkStatus());
    // Bucket 1 takes a parameter from bucket 0, which must then be set anew.
    EXPECT_EQ(set(1, {DType::kF32, {{"b", 5}}}), "");
    EXPECT_THAT(MessageOf(exchange->Exchange(0, data.data()).Wait()), HasSubstr("another bucket has taken"));
    EXPECT_EQ(set(0, {DType::kF32, {{"a", 4}}}), "");
    EXPECT_EQ(exchange->Exchange(0, data.data()).Wait(), absl::OkStatus());
    EXPECT_THAT(MessageOf(exchange->SetLossScale(0)), HasSubstr("must be a finite number above 0"));
  });
}

TEST(BucketExchange, ABucketUnderWayIsLeftAlone) {
  RankBarrier ranks(2);
  RunWorld(2, {.barrier = &ranks}, [&](Communicator& world) {
    const auto exchange = MakeBucketExchange(world, "gradient_allreduce");
    Floats data(20, static_cast<float>(world.rank()));
    Floats other(20, 0);
    ASSERT_EQ(exchange->SetBucket(0, {DType::kF32, {{"a", 20}}}, data.data()), absl::OkStatus());
    if (world.rank() == 1) ranks.Wait();  // until rank 0 has made its checks
    Work work = exchange->Exchange(0, data.data());
    if (world.rank() == 0) {  // here the peer has not begun the exchange
      const std::string refused = "rank 0: bucket 0 is still under way";
      EXPECT_THAT(MessageOf(exchange->Exchange(0, other.data()).Wait()), HasSubstr(refused));
      EXPECT_THAT(MessageOf(exchange->SaveState().status()), HasSubstr(refused));
      ranks.Wait();
    }
    EXPECT_EQ(work.Wait(), absl::OkStatus());
    EXPECT_EQ(data, Floats(20, 0.5f));
  });
}

// Makes `call` after an exchange that this rank waits for or not, again and again until the call ends with `code`, and
// returns how it ended. The exchange is large, so that it is still under way where it is not waited for; on a busy
// machine it may have ended all the same, on some ranks or on all. All ranks see the same codes.
absl::Status AfterAnExchange(BucketExchange& exchange, Floats& data, bool waits, absl::StatusCode code,
                             const std::function<absl::Status()>& call) {
  constexpr int kMaxTries = 100;
  absl::Status status;
  for (int i = 0; i < kMaxTries && status.code() != code; ++i) {
    Work work = exchange.Exchange(0, data.data());
    if (waits) {
      EXPECT_EQ(work.Wait(), absl::OkStatus());
    }
    status = call();
    EXPECT_EQ(work.Wait(), absl::OkStatus());
  }
  return status;
}

constexpr std::int64_t kLarge = 4 << 20;

TEST(BucketExchange, ABucketThatIsUnderWayOnAllRanksIsNotSet) {
  RunWorld(2, [](Communicator& world) {
    const auto exchange = MakeBucketExchange(world, "gradient_allreduce");
    Floats data(kLarge, 1);
    const auto set = [&] { return exchange->SetBucket(0, {DType::kF32, {{"a", kLarge}}}, data.data()); };
    ASSERT_EQ(set(), absl::OkStatus());
    const absl::Status refused =
        AfterAnExchange(*exchange, data, /*waits=*/false, absl::StatusCode::kFailedPrecondition, set);
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
    EXPECT_THAT(MessageOf(refused), HasSubstr("bucket 0 is still under way"));
    EXPECT_EQ(set(), absl::OkStatus());
  });
}

// The rank that has waited would wait for the other one until the timeout.
TEST(BucketExchange, ABucketThatIsUnderWayOnOneRankIsToldToAll) {
  RunWorld(2, {.communicator = {.timeout = absl::Seconds(20)}}, [](Communicator& world) {
    const auto exchange = MakeBucketExchange(world, "gradient_allreduce");
    Floats data(kLarge, 1);
    ASSERT_EQ(exchange->SetBucket(0, {DType::kF32, {{"a", kLarge}}}, data.data()), absl::OkStatus());
    const absl::Status refused =
        AfterAnExchange(*exchange, data, /*waits=*/world.rank() == 1, absl::StatusCode::kInvalidArgument,
                        [&] { return exchange->SetLossScale(2 * exchange->loss_scale()); });
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(MessageOf(refused), HasSubstr("rank 0 has bucket 0 is still under way"));
    EXPECT_EQ(exchange->SetLossScale(3), absl::OkStatus());
  });
}

// A rank that has no room to stage a bucket's new memory tells the others; all ranks can go on afterwards.
TEST(BucketExchange, WantOfMemoryOfOneRankEndsTheExchangeOnAll) {
  constexpr std::int64_t kCount = 1 << 20;
  RunWorld(3, {.region_bytes = std::int64_t{64} << 20}, [](Communicator& world) {
    const auto exchange = MakeBucketExchange(world, "gradient_allreduce");
    Buffer arena = *world.Allocate(kCount * sizeof(float));
    ASSERT_EQ(exchange->SetBucket(0, {DType::kF32, {{"a", kCount}}}, arena.data()), absl::OkStatus());
    Floats ordinary(kCount, static_cast<float>(world.rank()));
    std::vector<Buffer> taken;
    if (world.rank() == 1) taken = TakeFreeMemory(world);
    const absl::Status refused = exchange->Exchange(0, ordinary.data()).Wait();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_EQ(exchange->SaveState().status(), absl::OkStatus()) << "the bucket has no residuals that could be lost";
    taken.clear();
    ASSERT_EQ(exchange->Exchange(0, ordinary.data()).Wait(), absl::OkStatus());
    EXPECT_EQ(ordinary, Floats(kCount, 1));
  });
}

TEST(BucketExchange, GivenUpInTheMiddleItFailsOnAllRanks) {
  RankBarrier first_has_ended(2);
  RunWorld(2, {.barrier = &first_has_ended}, [&](Communicator& world) {
    auto exchange = MakeBucketExchange(world, "gradient_allreduce");
    Floats data(20);
    for (const int bucket : {0, 1}) {
      const std::string key(1, static_cast<char>('a' + bucket));
      ASSERT_EQ(exchange->SetBucket(bucket, {DType::kF32, {{key, 10}}}, data.data() + 10 * bucket), absl::OkStatus());
    }
    EXPECT_EQ(exchange->Exchange(0, data.data()).Wait(), absl::OkStatus());
    first_has_ended.Wait();
    if (world.rank() == 0) {
      Work second = exchange->Exchange(1, data.data() + 10);
      exchange.reset();
      EXPECT_EQ(second.Wait().code(), absl::StatusCode::kAborted);
      return;
    }
    std::int32_t unused = 0;
    // This call meets the aborted exchange of the peer, or comes after the abort.
    EXPECT_FALSE(world.Recv(&unused, 1, DType::kI32, 0).Wait().ok());
  });
}

}  // namespace
}  // namespace tutti
