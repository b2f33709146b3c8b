#include "tests/torch/fake_gpu.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/harness/fake_cuda.h"

namespace tutti {
namespace {

constexpr int kFreed = 0xDD;
constexpr std::size_t kStreamsOfPool = 4;

const CudaRuntime& Fake() { return FakeCuda::Table(); }

void Check(CudaError error) {
  TORCH_CHECK(error == kCudaSuccess, "the fake CUDA: ", Fake().error_name(error), ": ", Fake().error_text(error));
}

int CurrentDevice() {
  int device = 0;
  Check(Fake().current_device(&device));
  return device;
}

// The id of a stream is its handle: 0 is the default stream.
using Streams = std::array<c10::StreamId, kFakeDevices>;
Streams& CurrentStreams() {
  thread_local Streams streams = {};
  return streams;
}

CUevent_st* EventOf(void* event) { return static_cast<CUevent_st*>(event); }

// Functions of the fake CUDA take null for the default stream of the current device.
class AtStream : public CudaDeviceScope {
 public:
  explicit AtStream(const c10::Stream& stream) : CudaDeviceScope(Fake(), stream.device_index()) {}
};

class Memory {
 public:
  explicit Memory(std::size_t bytes) : stream_(CurrentStream(CurrentDevice())) {
    Check(Fake().allocate(&data_, bytes));
    bytes_ = bytes;
  }
  ~Memory() {
    const AtStream at(stream_);
    for (const c10::Stream& other : users_) {
      CUevent_st* event = nullptr;
      Check(Fake().create_event(&event));
      Check(Fake().record_event(event, HandleOf(other)));
      Check(Fake().wait_event(HandleOf(stream_), event));
      Check(Fake().destroy_event(event));
    }
    Check(Fake().fill_async(data_, kFreed, bytes_, HandleOf(stream_)));
    Check(Fake().free_async(data_, HandleOf(stream_)));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }
  at::Device device() const { return stream_.device(); }
  void UsedOn(const c10::Stream& stream) {
    if (stream != stream_) users_.push_back(stream);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  const c10::Stream stream_;
  std::vector<c10::Stream> users_;
};

class FakeAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, Gpu(CurrentDevice())};
    auto memory = std::make_unique<Memory>(bytes);
    void* const data = memory->data();
    const at::Device device = memory->device();
    return {data, memory.release(), &Free, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    Check(Fake().copy_async(to, from, bytes, HandleOf(CurrentStream(CurrentDevice()))));
  }
  static void Free(void* memory) { delete static_cast<Memory*>(memory); }
};

class FakeGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return at::kCUDA; }
  at::Device getDevice() const override { return Gpu(CurrentDevice()); }
  void setDevice(at::Device device) const override { Check(Fake().set_device(device.index())); }
  void uncheckedSetDevice(at::Device device) const noexcept override { Fake().set_device(device.index()); }
  at::Device exchangeDevice(at::Device device) const override {
    const at::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kFakeDevices; }

  c10::Stream getStream(at::Device device) const override {
    if (!device.has_index()) device = getDevice();
    return c10::Stream(c10::Stream::UNSAFE, device, CurrentStreams().at(device.index()));
  }
  c10::Stream getDefaultStream(at::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device.has_index() ? device : getDevice());
  }
  c10::Stream getStreamFromGlobalPool(at::Device device, bool) const override {
    if (!device.has_index()) device = getDevice();
    static const auto& pools = *new std::vector<std::vector<c10::Stream>>(MakePools());
    static std::atomic<std::size_t> next = 0;
    return pools[device.index()][next++ % kStreamsOfPool];
  }
  // A stream that lives as long as the process, as those of torch's pool do.
  c10::Stream getNewStream(at::Device device, int) const override {
    if (!device.has_index()) device = getDevice();
    const CudaDeviceScope scope(Fake(), device.index());
    CUstream_st* stream = nullptr;
    Check(Fake().create_stream(&stream));
    return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    CurrentStreams().at(stream.device_index()) = stream.id();
    return before;
  }
  std::vector<std::vector<c10::Stream>> MakePools() const {
    std::vector<std::vector<c10::Stream>> pools(kFakeDevices);
    for (int device = 0; device < kFakeDevices; ++device) {
      for (std::size_t i = 0; i < kStreamsOfPool; ++i) pools[device].push_back(getNewStream(Gpu(device), 0));
    }
    return pools;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return HandleOf(stream); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    const AtStream at(stream);
    auto* handle = EventOf(*event);
    if (handle == nullptr) Check(Fake().create_event(&handle));
    Check(Fake().record_event(handle, HandleOf(stream)));
    *event = handle;
  }
  void block(void* event, const c10::Stream& stream) const override {
    const AtStream at(stream);
    if (event != nullptr) Check(Fake().wait_event(HandleOf(stream), EventOf(event)));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || Fake().query_event(EventOf(event)) == kCudaSuccess;
  }
  void synchronizeEvent(void* event) const override {
    while (!queryEvent(event)) std::this_thread::yield();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    if (event != nullptr) Fake().destroy_event(EventOf(event));
  }
  bool queryStream(const c10::Stream& stream) const override {
    const AtStream at(stream);
    return Fake().query_stream(HandleOf(stream)) == kCudaSuccess;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    const AtStream at(stream);
    Check(Fake().synchronize_stream(HandleOf(stream)));
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get_deleter() == &FakeAllocator::Free) static_cast<Memory*>(data.get_context())->UsedOn(stream);
  }
};

// What makes torch's own code, such as that of autograd, ask for streams.
struct FakeHooks final : public at::CUDAHooksInterface {
  explicit FakeHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  const at::Generator& getDefaultGenerator(at::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  bool isPinnedPtr(const void*) const override { return false; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
  at::DeviceIndex deviceCount() const override { return kFakeDevices; }
  at::DeviceIndex current_device() const override { return getCurrentDevice(); }
  at::DeviceIndex getCurrentDevice() const override { return static_cast<at::DeviceIndex>(CurrentDevice()); }
  void setCurrentDevice(at::DeviceIndex device) const override { Check(Fake().set_device(device)); }
  at::DeviceIndex exchangeDevice(at::DeviceIndex device) const override {
    const at::DeviceIndex before = getCurrentDevice();
    if (device >= 0) setCurrentDevice(device);
    return before;
  }
  at::DeviceIndex maybeExchangeDevice(at::DeviceIndex device) const override { return exchangeDevice(device); }
};

FakeAllocator fake_allocator;
// The allocator that is set last would count if both had the same priority, and torch 2.15 sets its own after this one.
[[maybe_unused]] const bool fake_allocator_is_set = [] {
  constexpr std::uint8_t kHighest = 255;
  c10::SetAllocator(at::kCUDA, &fake_allocator, kHighest);
  return true;
}();
C10_REGISTER_GUARD_IMPL(CUDA, FakeGuard);

}  // namespace

c10::Stream CurrentStream(int device) { return c10::impl::getDeviceGuardImpl(at::kCUDA)->getStream(Gpu(device)); }

CUstream_st* HandleOf(const c10::Stream& stream) { return reinterpret_cast<CUstream_st*>(stream.id()); }

c10::Stream AnotherStream(int device) { return c10::impl::getDeviceGuardImpl(at::kCUDA)->getNewStream(Gpu(device)); }

StreamGate::StreamGate(int device) {
  const c10::Stream stream = CurrentStream(device);
  const AtStream at(stream);
  Check(FakeCuda::Launch(HandleOf(stream), [state = state_] {
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->open; });
  }));
}

void StreamGate::Open() {
  const std::lock_guard lock(state_->mutex);
  state_->open = true;
  state_->changed.notify_all();
}

}  // namespace tutti

// The macro is for use in the namespace of the registry. A build of torch for CUDA has registered hooks of its own
// there.
namespace at {
C10_REGISTER_TYPED_CLASS_WITH_PRIORITY(CUDAHooksRegistry, "CUDAHooks", c10::REGISTRY_PREFERRED, tutti::FakeHooks);
}  // namespace at
