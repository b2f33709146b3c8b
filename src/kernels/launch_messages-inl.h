// LaunchEncode, LaunchDecode and LaunchRecode.
#ifndef TUTTI_KERNELS_LAUNCH_MESSAGES_INL_H_
#define TUTTI_KERNELS_LAUNCH_MESSAGES_INL_H_

#include <algorithm>
#include <string>

#include "kernels/launch.h"
#include "kernels/range_coders.h"
#include "kernels/rotated_coder.h"
#include "kernels/sign_coder.h"
#include "kernels/topk_coder.h"

namespace tutti::kernels {

// The most messages of one launch.
inline constexpr int kMaxMessages = 64;

template <class Runner, class Launcher, class Job, int kMax>
absl::Status LaunchBatch(const Launcher& launcher, Coder coder, const Batch<Job, kMax>& batch) {
  switch (coder) {
    case Coder::kRaw:
      return launcher.template EnqueueUnits<RawCoder, Runner>(batch);
    case Coder::kF16:
      return launcher.template EnqueueUnits<CastCoder<Float16Element>, Runner>(batch);
    case Coder::kBF16:
      return launcher.template EnqueueUnits<CastCoder<BFloat16Element>, Runner>(batch);
    case Coder::kGrid8:
      return launcher.template EnqueueUnits<Grid8Coder, Runner>(batch);
    case Coder::kGrid4:
      return launcher.template EnqueueUnits<Grid4Coder, Runner>(batch);
    case Coder::kRotatedGrid4:
      return launcher.template EnqueueUnits<RotatedGrid4Coder, Runner>(batch);
    case Coder::kMinMax8:
      return launcher.template EnqueueUnits<MinMax8Coder, Runner>(batch);
    case Coder::kSign:
      return launcher.template EnqueueUnits<SignCoder, Runner>(batch);
    case Coder::kTopK:
      return launcher.template EnqueueUnits<TopKCoder, Runner>(batch);
  }
  return absl::InternalError("coder " + std::to_string(static_cast<int>(coder)) + " does not exist");
}

// Launches jobs together that follow one another and have one coder.
template <class Runner, class Launcher, class Job>
absl::Status LaunchJobs(const Launcher& launcher, absl::Span<const Job> jobs, std::uint32_t* fault) {
  Batch<Job, kMaxMessages> batch;
  batch.report = {fault};
  for (std::size_t begin = 0; begin < jobs.size(); begin += static_cast<std::size_t>(batch.num_jobs)) {
    const Coder coder = Runner::LayoutOf(jobs[begin]).coder;
    batch.num_jobs = 0;
    batch.first_number = static_cast<int>(begin);
    std::int64_t units = 0;
    for (const Job& job : jobs.subspan(begin)) {
      if (batch.num_jobs == kMaxMessages || Runner::LayoutOf(job).coder != coder) break;
      units += UnitsOf(Runner::LayoutOf(job));
      batch.jobs[batch.num_jobs] = job;
      batch.ends[batch.num_jobs++] = units;
    }
    if (absl::Status status = LaunchBatch<Runner>(launcher, coder, batch); !status.ok()) return status;
  }
  return absl::OkStatus();
}

template <class Launcher>
absl::Status LaunchEncode(Stream stream, absl::Span<const EncodeJob> jobs) {
  return LaunchJobs<RunEncode>(Launcher(stream), jobs, nullptr);
}

template <class Launcher>
absl::Status LaunchDecode(Stream stream, absl::Span<const DecodeJob> jobs, std::uint32_t* fault) {
  return LaunchJobs<RunDecode>(Launcher(stream), jobs, fault);
}

template <class Launcher>
absl::Status LaunchRecode(Stream stream, const EncodeJob& encode, float* sum,
                          absl::Span<const std::uint8_t* const> versions, std::int32_t divisor, std::uint32_t* fault) {
  if (versions.empty() || versions.size() > kMaxOperands) {
    return absl::InvalidArgumentError(
        absl::StrCat("a kernel of ", versions.size(), " versions: there must be 1 to ", kMaxOperands));
  }
  Batch<RecodeJob, 1> batch;
  RecodeJob& job = batch.jobs[0];
  job.encode = encode;
  job.sum = sum;
  std::copy(versions.begin(), versions.end(), job.versions);
  job.num_versions = static_cast<int>(versions.size());
  job.divides = divisor != 1;
  job.quotients = Quotients<float>(divisor);
  batch.ends[0] = UnitsOf(encode.layout);
  batch.num_jobs = 1;
  batch.first_number = 0;
  batch.report = {fault};
  return LaunchBatch<RunRecode>(Launcher(stream), encode.layout.coder, batch);
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_LAUNCH_MESSAGES_INL_H_
