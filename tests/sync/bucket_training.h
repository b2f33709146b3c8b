// A framework that owns its buckets, and trains with a BucketExchange.
#ifndef TUTTI_TESTS_SYNC_BUCKET_TRAINING_H_
#define TUTTI_TESTS_SYNC_BUCKET_TRAINING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/training.h"
#include "tutti/bucket_exchange.h"

namespace tutti {

using Gradients = std::map<std::string, Floats>;        // by key
using Buckets = std::vector<std::vector<std::string>>;  // keys, in the order in which they lie
using ParameterCounts = std::map<std::string, std::int64_t>;

inline std::unique_ptr<BucketExchange> MakeBucketExchange(Communicator& world, const std::string& strategy,
                                                          MemoryKind kind = MemoryKind::kHost) {
  absl::StatusOr<std::unique_ptr<BucketExchange>> made = BucketExchange::Create(world, strategy, kind);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

class BucketTraining {
 public:
  // Makes the exchange. `allocated`: buckets lie in memory of the communicator, which peers can map where it is not
  // that of a GPU.
  BucketTraining(Communicator& world, const std::string& strategy, ParameterCounts counts, bool allocated = false,
                 MemoryKind kind = MemoryKind::kHost)
      : world_(world),
        counts_(std::move(counts)),
        allocated_(allocated),
        kind_(kind),
        exchange_(MakeBucketExchange(world, strategy, kind)) {}

  BucketExchange& exchange() { return *exchange_; }

  // Cuts the buckets anew, in other memory.
  void SetBuckets(const Buckets& buckets) {
    buckets_ = buckets;
    memory_.clear();
    ordinary_.clear();
    for (int b = 0; b < static_cast<int>(buckets.size()); ++b) {
      Move(b);
      BucketContents contents;
      for (const std::string& key : buckets[b]) contents.parameters.push_back({key, counts_[key]});
      ASSERT_EQ(exchange_->SetBucket(b, contents, data(b)), absl::OkStatus());
    }
  }

  // Gives bucket `b` other memory.
  void Move(int b) {
    std::int64_t count = 0;
    for (const std::string& key : buckets_[b]) count += counts_[key];
    memory_.resize(buckets_.size());
    ordinary_.resize(buckets_.size());
    ordinary_[b] = std::make_unique<Floats>(count);
    if (allocated_) memory_[b] = *world_.Allocate(std::max<std::int64_t>(1, count) * 4, kind_);
  }

  // Exchanges the gradients of all parameters, bucket after bucket, and returns what they have become.
  Gradients Step(const Gradients& gradients) {
    std::vector<Work> works;
    for (int b = 0; b < static_cast<int>(buckets_.size()); ++b) {
      float* to = data(b);
      for (const std::string& key : buckets_[b]) to = std::copy_n(gradients.at(key).begin(), counts_[key], to);
      works.push_back(exchange_->Exchange(b, data(b)));
    }
    Gradients result;
    for (int b = 0; b < static_cast<int>(buckets_.size()); ++b) {
      const absl::Status status = works[b].Wait();
      EXPECT_TRUE(status.ok()) << status;
      const float* from = data(b);
      for (const std::string& key : buckets_[b]) {
        result[key] = Floats(from, from + counts_[key]);
        from += counts_[key];
      }
    }
    return result;
  }

  float* data(int b) { return allocated_ ? memory_[b].as<float>().data() : ordinary_[b]->data(); }

 private:
  Communicator& world_;
  ParameterCounts counts_;
  const bool allocated_;
  const MemoryKind kind_;
  std::unique_ptr<BucketExchange> exchange_;
  Buckets buckets_;
  std::vector<Buffer> memory_;
  std::vector<std::unique_ptr<Floats>> ordinary_;
};

// Random gradients of one rank.
inline Gradients RandomGradientsOf(const ParameterCounts& counts, std::uint32_t seed) {
  Gradients gradients;
  for (const auto& [key, count] : counts) gradients[key] = RandomNumbers(count, seed++);
  return gradients;
}

}  // namespace tutti

#endif  // TUTTI_TESTS_SYNC_BUCKET_TRAINING_H_
