// Averages gradients in buckets that another framework owns: tutti launch -n 4 -- bucket_exchange
#include "tutti/bucket_exchange.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <vector>

namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

// A bucket as a framework hands it to its communication hook.
struct Bucket {
  int index = 0;
  tutti::BucketContents contents;
  std::vector<float> gradients = {};
};

// [hook]
// The function that a framework calls when the gradients of a bucket are complete. `is_new`: the framework has cut its
// buckets anew.
absl::Status ExchangeBucket(tutti::BucketExchange& exchange, Bucket& bucket, bool is_new) {
  if (is_new) {
    absl::Status set = exchange.SetBucket(bucket.index, bucket.contents, bucket.gradients.data());
    if (!set.ok()) return set;
  }
  return exchange.Exchange(bucket.index, bucket.gradients.data()).Wait();  // a hook would return a future instead
}
// [hook]

}  // namespace

int main() {
  const absl::StatusOr<tutti::Bootstrap> job = tutti::BootstrapFromEnvironment();
  if (!job.ok()) return Fail(job.status());
  const absl::StatusOr<std::unique_ptr<tutti::Communicator>> world = tutti::Communicator::Create(*job);
  if (!world.ok()) return Fail(world.status());
  const auto exchange = tutti::BucketExchange::Create(**world, "bytegrad:error_feedback=true");
  if (!exchange.ok()) return Fail(exchange.status());

  // As DDP does, the framework cuts other buckets after the first step, with the parameters in the order of backward.
  std::vector<Bucket> first = {{.index = 0, .contents = {.parameters = {{"embedding", 3000}, {"head", 1000}}}}};
  std::vector<Bucket> rebuilt = {{.index = 0, .contents = {.parameters = {{"head", 1000}}}},
                                 {.index = 1, .contents = {.parameters = {{"embedding", 3000}}}}};
  double average = 0;
  for (int step = 0; step < 5; ++step) {
    for (Bucket& bucket : step == 0 ? first : rebuilt) {
      std::size_t count = 0;
      for (const tutti::BucketParameter& parameter : bucket.contents.parameters) count += parameter.count;
      bucket.gradients.assign(count, static_cast<float>((*world)->rank() + 1));
      const absl::Status exchanged = ExchangeBucket(**exchange, bucket, /*is_new=*/step < 2);
      if (!exchanged.ok()) return Fail(exchanged);
      average = static_cast<double>(*std::max_element(bucket.gradients.begin(), bucket.gradients.end()));
    }
  }
  std::printf("rank %d of %d: every gradient is now %g\n", (*world)->rank(), (*world)->size(), average);
  const double expected = ((*world)->size() + 1) / 2.0;
  return average > expected - 0.01 && average < expected + 0.01 ? 0 : Fail(absl::InternalError("the average is wrong"));
}
