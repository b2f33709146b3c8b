// A small training whose gradients and weights lie in memory of the host, or of a fake GPU with streams of its own.
#ifndef TUTTI_TESTS_SYNC_DEVICE_TRAINING_H_
#define TUTTI_TESTS_SYNC_DEVICE_TRAINING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/world.h"
#include "tutti/qadam.h"
#include "tutti/synchronizer.h"

namespace tutti {

// One rank's training. What a GPU would compute is enqueued on `stream`, or for every other gradient on `side`, and
// takes a moment there: whoever does not wait for it finds other values.
class DeviceTraining {
 public:
  DeviceTraining(Communicator& world, const std::string& strategy, MemoryKind kind, SynchronizerOptions options = {})
      : world_(world), kind_(kind) {
    options.strategy = strategy;
    options.bucket_bytes = 1500;
    options.first_bucket_bytes = 64;
    options.memory = kind;
    std::vector<Parameter> parameters;
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      weights_.push_back(Allocate(kCounts[i]));
      own_gradients_.push_back(Allocate(kCounts[i]));
      std::fill_n(weights_.back(), kCounts[i], 1.0f);
      std::fill_n(own_gradients_.back(), kCounts[i], 0.0f);
      parameters.push_back({.name = std::string(1, static_cast<char>('a' + i)),
                            .count = kCounts[i],
                            .shape = std::to_string(kCounts[i]),
                            .weights = weights_.back()});
    }
    if (on_device()) {
      EXPECT_EQ(FakeCuda::Table().set_device(world.rank()), kCudaSuccess);
      EXPECT_EQ(FakeCuda::Table().create_stream(&stream_), kCudaSuccess);
      EXPECT_EQ(FakeCuda::Table().create_stream(&side_), kCudaSuccess);
    }
    absl::StatusOr<std::unique_ptr<Synchronizer>> made = Synchronizer::Create(world, parameters, options);
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return;
    synchronizer = *std::move(made);
    synchronizer->SetStream(stream_);
    if (strategy.substr(0, 5) != "qadam") return;
    std::vector<QAdam::Weights> all;
    for (float* weights : weights_) all.push_back({.data = weights});
    absl::StatusOr<std::unique_ptr<QAdam>> adam = QAdam::Create(*synchronizer, all, {{.lr = 0.125}});
    EXPECT_TRUE(adam.ok()) << adam.status();
    if (adam.ok()) optimizer = *std::move(adam);
  }
  ~DeviceTraining() {
    Wait();
    optimizer.reset();
    synchronizer.reset();
    if (!on_device()) return;
    EXPECT_EQ(FakeCuda::Table().destroy_stream(stream_), kCudaSuccess);
    EXPECT_EQ(FakeCuda::Table().destroy_stream(side_), kCudaSuccess);
  }
  DeviceTraining(const DeviceTraining&) = delete;
  DeviceTraining& operator=(const DeviceTraining&) = delete;

  // A step of the training, of which nothing is waited for. Returns the first error.
  absl::Status Step() {
    absl::Status first = synchronizer->BeginForward();
    first.Update(synchronizer->BeginBackward());
    for (int i = static_cast<int>(kCounts.size()) - 1; i >= 0; --i) {
      CUstream_st* const stream = i % 2 == 1 ? side_ : stream_;
      if (stream == side_) LetWait(side_, stream_);
      Compute(stream, [this, i, gradient = gradient(i), step = step_] {
        for (std::int64_t k = 0; k < kCounts[i]; ++k) {
          gradient[k] = static_cast<float>((world_.rank() + 1) * (i + 1) + step + k % 5) * 0.125f;
        }
      });
      if (stream == side_) {
        synchronizer->MarkReady(i, side_);
        LetWait(stream_, side_);
      } else {
        synchronizer->MarkReady(i);
      }
    }
    first.Update(synchronizer->FinishBackward());
    first.Update(synchronizer->BeforeStep());
    if (optimizer != nullptr) {
      first.Update(optimizer->Step());
    } else {
      for (int i = 0; i < static_cast<int>(kCounts.size()); ++i) {
        Compute(stream_, [this, i, gradient = gradient(i)] {
          for (std::int64_t k = 0; k < kCounts[i]; ++k) weights_[i][k] -= 0.5f * gradient[k];
        });
      }
    }
    first.Update(synchronizer->AfterStep());
    ++step_;
    return first;
  }

  // Waits for the GPU and returns all weights.
  std::vector<float> Weights() {
    Wait();
    std::vector<float> all;
    for (std::size_t i = 0; i < kCounts.size(); ++i) all.insert(all.end(), weights_[i], weights_[i] + kCounts[i]);
    return all;
  }
  void Wait() {
    if (!on_device()) return;
    EXPECT_EQ(FakeCuda::Table().synchronize_stream(stream_), kCudaSuccess);
    EXPECT_EQ(FakeCuda::Table().synchronize_stream(side_), kCudaSuccess);
  }
  CUstream_st* stream() const { return stream_; }
  bool on_device() const { return kind_ == MemoryKind::kDevice; }

  std::unique_ptr<Synchronizer> synchronizer;
  std::unique_ptr<QAdam> optimizer;

 private:
  static constexpr std::array<std::int64_t, 5> kCounts = {300, 7, 0, 401, 1};

  float* Allocate(std::int64_t count) {
    if (on_device()) {
      on_device_.push_back(std::make_unique<FakeMemory>(world_.rank(), count * 4));
      return on_device_.back()->floats();
    }
    on_host_.push_back(std::make_unique<std::vector<float>>(static_cast<std::size_t>(count) + 1));
    return on_host_.back()->data();
  }
  float* gradient(int i) {
    const std::shared_ptr<void> view = synchronizer->GradientView(i);
    return view != nullptr ? static_cast<float*>(view.get()) : own_gradients_[static_cast<std::size_t>(i)];
  }
  void Compute(CUstream_st* stream, std::function<void()> work) {
    if (!on_device()) return work();
    EXPECT_EQ(FakeCuda::Launch(stream,
                               [work = std::move(work)] {
                                 std::this_thread::sleep_for(std::chrono::microseconds(100));
                                 work();
                               }),
              kCudaSuccess);
  }
  void LetWait(CUstream_st* waiting, CUstream_st* stream) const {
    if (!on_device()) return;
    CUevent_st* event = nullptr;
    const CudaRuntime& cuda = FakeCuda::Table();
    EXPECT_EQ(cuda.create_event(&event), kCudaSuccess);
    EXPECT_EQ(cuda.record_event(event, stream), kCudaSuccess);
    EXPECT_EQ(cuda.wait_event(waiting, event), kCudaSuccess);
    EXPECT_EQ(cuda.destroy_event(event), kCudaSuccess);
  }

  Communicator& world_;
  const MemoryKind kind_;
  CUstream_st* stream_ = nullptr;
  CUstream_st* side_ = nullptr;
  std::vector<std::unique_ptr<FakeMemory>> on_device_;
  std::vector<std::unique_ptr<std::vector<float>>> on_host_;
  std::vector<float*> weights_;
  std::vector<float*> own_gradients_;
  int step_ = 0;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_SYNC_DEVICE_TRAINING_H_
