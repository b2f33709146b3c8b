#include "tests/harness/fake_cuda.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tutti {
namespace {

constexpr CudaError kInvalidValue = 1;
constexpr CudaError kInvalidDevice = 101;
constexpr CudaError kCaptureUnsupported = 900;
constexpr CudaError kCaptureInvalidated = 901;
constexpr CudaError kCaptureMerge = 902;
constexpr CudaError kCaptureUnjoined = 904;
constexpr CudaError kCaptureIsolation = 905;
constexpr CudaError kCapturedEvent = 907;
constexpr std::size_t kMemoryOfDevice = std::size_t{1} << 34;

struct Block {
  std::size_t bytes = 0;
  CudaPointer pointer;
};

struct Event {
  int device = 0;                    // that was current when the event was made
  std::shared_ptr<FakeRecord> last;  // record; null: none
};

// One for the process. Never destroyed: threads of streams may outlive main.
struct State {
  Mutex mutex;
  std::map<CUstream_st*, std::shared_ptr<FakeStream>> streams TUTTI_GUARDED_BY(mutex);
  std::shared_ptr<FakeStream> default_streams[kFakeDevices] TUTTI_GUARDED_BY(mutex);
  std::map<CUevent_st*, Event> events TUTTI_GUARDED_BY(mutex);
  std::uintptr_t event_handles TUTTI_GUARDED_BY(mutex) = 0;
  std::map<const std::byte*, Block> blocks TUTTI_GUARDED_BY(mutex);
  std::map<std::string, CudaError, std::less<>> failures TUTTI_GUARDED_BY(mutex);
  CudaError errors[kFakeDevices] TUTTI_GUARDED_BY(mutex) = {};
  std::set<std::string> kernels[kFakeDevices] TUTTI_GUARDED_BY(mutex);  // those that are loaded
  FakeCudaCounts counts TUTTI_GUARDED_BY(mutex);
};

State& TheState() {
  static State& state = *new State;
  return state;
}

// The device that is current in a thread. A thread has no context before it calls a function that needs one, or sets a
// device.
struct Current {
  int device = 0;
  bool has_context = false;
};
// The devices that were current before others were pushed, as a list without a destructor: torch has a tensor among its
// static objects (of barriers), which is freed, with its device pushed, after the objects of the thread have been
// destroyed.
struct Pushed {
  Current current;
  Pushed* before;
};
thread_local Current current;
thread_local Pushed* pushed = nullptr;
std::atomic<bool> contexts[kFakeDevices];

void UseContext() {
  contexts[current.device] = true;
  current.has_context = true;
}

thread_local int capture_mode = 0;  // of cudaStreamCaptureMode
// Captures under way, by device. Each device stands for a process of its own.
std::atomic<int> captures_on[kFakeDevices];

std::atomic<bool> invalidated_on[kFakeDevices];

// Whether this thread may not query, allocate or free now. The captures are invalid then.
bool IsUnsafe() {
  UseContext();
  if (captures_on[current.device].load() == 0 || capture_mode == kCudaCaptureRelaxed) return false;
  invalidated_on[current.device] = true;
  return true;
}

void Count(std::int64_t FakeCudaCounts::*kind) {
  State& state = TheState();
  MutexLock lock(state.mutex);
  ++(state.counts.*kind);
}

CudaError Failure(absl::string_view function) {
  State& state = TheState();
  MutexLock lock(state.mutex);
  if (const CudaError error = state.errors[current.device]; error != kCudaSuccess) return error;
  const auto found = state.failures.find(function);
  if (found == state.failures.end()) return kCudaSuccess;
  const CudaError error = found->second;
  state.failures.erase(found);
  return error;
}

// The stream that lives under this handle; null: none.
std::shared_ptr<FakeStream> Find(CUstream_st* handle) {
  UseContext();
  State& state = TheState();
  MutexLock lock(state.mutex);
  if (handle == nullptr || handle == FakeCuda::LegacyStream()) {
    std::shared_ptr<FakeStream>& stream = state.default_streams[current.device];
    if (stream == nullptr) stream = FakeStream::Make(current.device);
    return stream;
  }
  const auto found = state.streams.find(handle);
  return found == state.streams.end() ? nullptr : found->second;
}

CudaError Enqueue(absl::string_view function, std::int64_t FakeCudaCounts::*kind, CUstream_st* handle,
                  std::function<void()> work) {
  if (const CudaError error = Failure(function); error != kCudaSuccess) return error;
  const std::shared_ptr<FakeStream> stream = Find(handle);
  if (stream == nullptr) return kCudaInvalidHandle;
  Count(kind);
  stream->Push(std::move(work));
  return kCudaSuccess;
}

CudaError Allocate(absl::string_view function, void** data, std::size_t bytes, CudaPointer::Kind kind) {
  if (IsUnsafe()) return kCaptureUnsupported;
  if (const CudaError error = Failure(function); error != kCudaSuccess) return error;
  constexpr std::size_t kAlignment = 256;
  *data = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  std::memset(*data, 0xCD, bytes);
  State& state = TheState();
  MutexLock lock(state.mutex);
  ++state.counts.allocations;
  state.blocks[static_cast<const std::byte*>(*data)] = {bytes, {kind, current.device}};
  return kCudaSuccess;
}

// Takes the block at `data` off the list; its device, or -1 when there is no such block.
int Forget(void* data, CudaPointer::Kind kind) {
  State& state = TheState();
  MutexLock lock(state.mutex);
  const auto found = state.blocks.find(static_cast<const std::byte*>(data));
  if (found == state.blocks.end() || found->second.pointer.kind != kind) return -1;
  const int device = found->second.pointer.device;
  state.blocks.erase(found);
  ++state.counts.frees;
  return device;
}

// A word arrives as one, as by DMA: the host may look at it meanwhile.
void CopyNow(void* dst, const void* src, std::size_t bytes) {
  std::uint32_t word = 0;
  if (bytes != sizeof word || reinterpret_cast<std::uintptr_t>(dst) % alignof(std::uint32_t) != 0) {
    std::memmove(dst, src, bytes);
    return;
  }
  std::memcpy(&word, src, sizeof word);
  std::atomic_ref(*static_cast<std::uint32_t*>(dst)).store(word, std::memory_order_relaxed);
}

void Synchronize(int device) {
  std::vector<std::shared_ptr<FakeStream>> streams;
  {
    State& state = TheState();
    MutexLock lock(state.mutex);
    for (const auto& [handle, stream] : state.streams) {
      if (stream->device() == device) streams.push_back(stream);
    }
    if (state.default_streams[device] != nullptr) streams.push_back(state.default_streams[device]);
  }
  for (const auto& stream : streams) stream->Drain();
}

CudaError Free(absl::string_view function, void* data, CudaPointer::Kind kind) {
  if (IsUnsafe()) return kCaptureUnsupported;
  if (const CudaError error = Failure(function); error != kCudaSuccess) return error;
  if (data == nullptr) return kCudaSuccess;
  const int device = Forget(data, kind);
  if (device < 0) return kInvalidValue;
  Count(&FakeCudaCounts::synchronizations);
  Synchronize(device);
  std::free(data);
  return kCudaSuccess;
}

CudaError FreeAsync(void* data, CUstream_st* handle) {
  const std::shared_ptr<FakeStream> stream = Find(handle);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (data == nullptr) return kCudaSuccess;
  if (Forget(data, CudaPointer::Kind::kDevice) < 0) return kInvalidValue;
  stream->Push([data] { std::free(data); });
  return kCudaSuccess;
}

CudaError PointerTo(CudaPointer* found, const void* data) {
  UseContext();
  if (const CudaError error = Failure("pointer"); error != kCudaSuccess) return error;
  State& state = TheState();
  MutexLock lock(state.mutex);
  *found = {};
  auto block = state.blocks.upper_bound(static_cast<const std::byte*>(data));
  if (block == state.blocks.begin()) return kCudaSuccess;
  --block;
  if (static_cast<const std::byte*>(data) < block->first + block->second.bytes) *found = block->second.pointer;
  return kCudaSuccess;
}

CudaError CreateStream(CUstream_st** handle) {
  UseContext();
  if (const CudaError error = Failure("create_stream"); error != kCudaSuccess) return error;
  std::shared_ptr<FakeStream> stream = FakeStream::Make(current.device);
  *handle = reinterpret_cast<CUstream_st*>(stream.get());
  State& state = TheState();
  MutexLock lock(state.mutex);
  ++state.counts.streams;
  state.streams[*handle] = std::move(stream);
  return kCudaSuccess;
}

CudaError DestroyStream(CUstream_st* handle) {
  const std::shared_ptr<FakeStream> stream = Find(handle);
  if (handle == nullptr || stream == nullptr) return kCudaInvalidHandle;
  stream->Close();
  State& state = TheState();
  MutexLock lock(state.mutex);
  state.streams.erase(handle);
  return kCudaSuccess;
}

CudaError QueryStream(CUstream_st* handle) {
  if (IsUnsafe()) return kCaptureUnsupported;
  if (const CudaError error = Failure("query_stream"); error != kCudaSuccess) return error;
  const std::shared_ptr<FakeStream> stream = Find(handle);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (stream->capture() != nullptr) return kCaptureUnsupported;
  Count(&FakeCudaCounts::queries);
  return stream->idle() ? kCudaSuccess : kCudaNotReady;
}

CudaError SynchronizeStream(CUstream_st* handle) {
  if (IsUnsafe()) return kCaptureUnsupported;
  if (const CudaError error = Failure("synchronize_stream"); error != kCudaSuccess) return error;
  const std::shared_ptr<FakeStream> stream = Find(handle);
  if (stream == nullptr) return kCudaInvalidHandle;
  if (stream->capture() != nullptr) return kCaptureUnsupported;
  Count(&FakeCudaCounts::synchronizations);
  stream->Drain();
  return kCudaSuccess;
}

CudaError CaptureOf(CUstream_st* handle, CudaCapture* capture, unsigned long long* id) {
  const std::shared_ptr<FakeStream> stream = Find(handle);
  if (stream == nullptr) return kCudaInvalidHandle;
  const std::shared_ptr<FakeCapture> found = stream->capture();
  const bool invalid = found != nullptr && invalidated_on[stream->device()];
  *capture = invalid ? CudaCapture::kInvalidated : found != nullptr ? CudaCapture::kActive : CudaCapture::kNone;
  *id = *capture == CudaCapture::kActive ? found->id : 0;
  return kCudaSuccess;
}

CudaError CreateEvent(CUevent_st** handle) {
  UseContext();
  if (const CudaError error = Failure("create_event"); error != kCudaSuccess) return error;
  State& state = TheState();
  MutexLock lock(state.mutex);
  ++state.counts.events;
  *handle = reinterpret_cast<CUevent_st*>(++state.event_handles);
  state.events[*handle] = {current.device, nullptr};
  return kCudaSuccess;
}

CudaError DestroyEvent(CUevent_st* handle) {
  UseContext();
  State& state = TheState();
  MutexLock lock(state.mutex);
  return state.events.erase(handle) == 1 ? kCudaSuccess : kCudaInvalidHandle;
}

// Sets `record` to the event's last record so far, perhaps null. False when there is no such event.
bool Find(CUevent_st* handle, std::shared_ptr<FakeRecord>& record) {
  State& state = TheState();
  MutexLock lock(state.mutex);
  const auto found = state.events.find(handle);
  if (found == state.events.end()) return false;
  record = found->second.last;
  return true;
}

CudaError RecordEvent(CUevent_st* handle, CUstream_st* stream) {
  State& state = TheState();
  const auto record = std::make_shared<FakeRecord>();
  int device = 0;
  {
    MutexLock lock(state.mutex);
    const auto found = state.events.find(handle);
    if (found == state.events.end()) return kCudaInvalidHandle;
    device = found->second.device;
  }
  if (const CudaError error = Failure("record_event"); error != kCudaSuccess) return error;
  const std::shared_ptr<FakeStream> on = Find(stream);
  if (on == nullptr || on->device() != device) return kCudaInvalidHandle;
  Count(&FakeCudaCounts::records);
  record->capture = on->capture();
  if (record->capture != nullptr) {
    record->stream = on.get();
    record->entries = record->capture->RecordedOn(on.get());
  } else {
    on->Push([record] { record->Reach(); });
  }
  MutexLock lock(state.mutex);
  state.events[handle].last = record;
  return kCudaSuccess;
}

CudaError QueryEvent(CUevent_st* handle) {
  if (IsUnsafe()) return kCaptureUnsupported;
  if (const CudaError error = Failure("query_event"); error != kCudaSuccess) return error;
  std::shared_ptr<FakeRecord> record;
  if (!Find(handle, record)) return kCudaInvalidHandle;
  if (record != nullptr && record->capture != nullptr) return kCapturedEvent;
  Count(&FakeCudaCounts::queries);
  return record == nullptr || record->reached() ? kCudaSuccess : kCudaNotReady;
}

CudaError WaitEvent(CUstream_st* stream, CUevent_st* handle) {
  std::shared_ptr<FakeRecord> record;
  if (!Find(handle, record)) return kCudaInvalidHandle;
  const std::shared_ptr<FakeStream> on = Find(stream);
  if (on == nullptr) return kCudaInvalidHandle;
  const std::shared_ptr<FakeCapture> mine = on->capture();
  if (record != nullptr && record->capture != nullptr) {
    if (mine != nullptr && mine != record->capture) return kCaptureMerge;
    Count(&FakeCudaCounts::event_waits);
    if (on.get() != record->stream) record->capture->Join(record->stream, record->entries);
    if (mine == nullptr) on->BeginCapture(record->capture);
    return kCudaSuccess;
  }
  if (mine != nullptr && record != nullptr) return kCaptureIsolation;
  return Enqueue("wait_event", &FakeCudaCounts::event_waits, stream, [record] {
    if (record != nullptr) record->Await();
  });
}

CudaError SetDevice(int device) {
  if (device < 0 || device >= kFakeDevices) return kInvalidDevice;
  if (std::exchange(current.device, device) != device) Count(&FakeCudaCounts::device_changes);
  UseContext();
  return kCudaSuccess;
}

CudaError PushDevice(int device) {
  if (device < 0 || device >= kFakeDevices) return kInvalidDevice;
  if (const CudaError error = Failure("push_device"); error != kCudaSuccess) return error;
  pushed = new Pushed{current, pushed};
  return SetDevice(device);
}

CudaError PopDevice() {
  constexpr CudaError kInvalidContext = 201;
  if (pushed == nullptr) return kInvalidContext;
  const std::unique_ptr<Pushed> last(pushed);
  current = last->current;
  pushed = last->before;
  return kCudaSuccess;
}

CudaError DeviceName(char* name, int bytes, int device) {
  if (device < 0 || device >= kFakeDevices) return kInvalidDevice;
  const std::string full = absl::StrCat("fake GPU ", device);
  std::strncpy(name, full.c_str(), static_cast<std::size_t>(bytes) - 1);
  name[bytes - 1] = '\0';
  return kCudaSuccess;
}

CudaError DeviceUuid(char* uuid, int device) {
  if (device < 0 || device >= kFakeDevices) return kInvalidDevice;
  std::memcpy(uuid, absl::StrCat("fake GPU 000000", device).data(), 16);
  return kCudaSuccess;
}

template <typename Value>
CudaError Set(Value* variable, Value value) {
  *variable = value;
  return kCudaSuccess;
}

const char* ErrorName(CudaError error) {
  switch (error) {
    case kInvalidValue:
      return "cudaErrorInvalidValue";
    case kCudaOutOfMemory:
      return "cudaErrorMemoryAllocation";
    case kCudaNoDriver:
      return "cudaErrorInsufficientDriver";
    case kCudaNoDevice:
      return "cudaErrorNoDevice";
    case kCudaInvalidHandle:
      return "cudaErrorInvalidResourceHandle";
    case kCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    default:
      return "cudaErrorUnknown";
  }
}

CudaRuntime MakeTable() {
  using Kind = CudaPointer::Kind;
  return {
      .device_count =
          [](int* count) {
            const CudaError error = Failure("device_count");
            return error != kCudaSuccess ? error : Set(count, kFakeDevices);
          },
      .device_name = DeviceName,
      .compute_capability = [](int* major, int* minor, int) { return Set(major, 9) + Set(minor, 0); },
      .device_uuid = DeviceUuid,
      .driver_version = [](int* version) { return Set(version, 13000); },
      .runtime_version = [](int* version) { return Set(version, 13000); },
      .current_device = [](int* device) { return Set(device, current.device); },
      .set_device = SetDevice,
      .push_device = PushDevice,
      .pop_device = PopDevice,
      .memory_sizes =
          [](auto* free, auto* total) {
            UseContext();
            return Set(free, kMemoryOfDevice / 2) + Set(total, kMemoryOfDevice);
          },
      .allocate = [](void** data, std::size_t bytes) { return Allocate("allocate", data, bytes, Kind::kDevice); },
      .free = [](void* data) { return Free("free", data, Kind::kDevice); },
      .allocate_async =
          [](void** data, std::size_t bytes, CUstream_st* stream) {
            return Find(stream) == nullptr ? kCudaInvalidHandle
                                           : Allocate("allocate_async", data, bytes, Kind::kDevice);
          },
      .free_async = FreeAsync,
      .allocate_pinned = [](void** data,
                            std::size_t bytes) { return Allocate("allocate_pinned", data, bytes, Kind::kPinned); },
      .free_pinned = [](void* data) { return Free("free_pinned", data, Kind::kPinned); },
      .pointer = PointerTo,
      .copy_async =
          [](void* dst, const void* src, std::size_t bytes, CUstream_st* stream) {
            return Enqueue("copy_async", &FakeCudaCounts::copies, stream, [=] { CopyNow(dst, src, bytes); });
          },
      .fill_async =
          [](void* dst, int value, std::size_t bytes, CUstream_st* stream) {
            return Enqueue("fill_async", &FakeCudaCounts::fills, stream, [=] { std::memset(dst, value, bytes); });
          },
      .call_host =
          [](CUstream_st* stream, void (*function)(void*), void* data) {
            return Enqueue("call_host", &FakeCudaCounts::host_calls, stream, [=] { function(data); });
          },
      .create_stream = CreateStream,
      .destroy_stream = DestroyStream,
      .query_stream = QueryStream,
      .synchronize_stream = SynchronizeStream,
      .capture_of = CaptureOf,
      .exchange_capture_mode =
          [](int* mode) {
            UseContext();
            return Set(mode, std::exchange(capture_mode, *mode));
          },
      .create_event = CreateEvent,
      .destroy_event = DestroyEvent,
      .record_event = RecordEvent,
      .query_event = QueryEvent,
      .wait_event = WaitEvent,
      .error_name = ErrorName,
      .error_text = [](CudaError) { return "error of the fake CUDA"; },
  };
}

}  // namespace

FakeCudaCounts FakeCudaCounts::operator-(const FakeCudaCounts& before) const {
  FakeCudaCounts difference = *this;
  for (const auto kind :
       {&FakeCudaCounts::launches, &FakeCudaCounts::collectives, &FakeCudaCounts::copies, &FakeCudaCounts::fills,
        &FakeCudaCounts::host_calls, &FakeCudaCounts::records, &FakeCudaCounts::event_waits, &FakeCudaCounts::queries,
        &FakeCudaCounts::synchronizations, &FakeCudaCounts::allocations, &FakeCudaCounts::frees,
        &FakeCudaCounts::streams, &FakeCudaCounts::events, &FakeCudaCounts::device_changes}) {
    difference.*kind -= before.*kind;
  }
  return difference;
}

const CudaRuntime& FakeCuda::Table() {
  static const CudaRuntime& table = *new CudaRuntime(MakeTable());
  return table;
}

CudaError FakeCuda::Launch(CUstream_st* stream, std::function<void()> kernel) {
  return Enqueue("launch", &FakeCudaCounts::launches, stream, std::move(kernel));
}

CudaError FakeCuda::LoadKernel(const std::string& name) {
  if (const CudaError error = Failure("load_kernel"); error != kCudaSuccess) return error;
  State& state = TheState();
  {
    MutexLock lock(state.mutex);
    if (!state.kernels[current.device].insert(name).second) return kCudaSuccess;
  }
  Synchronize(current.device);
  return kCudaSuccess;
}

void FakeCuda::Break(int device, CudaError error) {
  State& state = TheState();
  MutexLock lock(state.mutex);
  state.errors[device] = error;
}

bool FakeCuda::HasContext(int device) { return contexts[device]; }

void FakeCuda::Restart() {
  for (std::atomic<bool>& context : contexts) context = false;
  State& state = TheState();
  MutexLock lock(state.mutex);
  for (std::set<std::string>& kernels : state.kernels) kernels.clear();
}

CudaError FakeCuda::LaunchCollective(CUstream_st* stream, std::function<void()> launch) {
  return Enqueue("launch_collective", &FakeCudaCounts::collectives, stream, std::move(launch));
}

FakeCudaCounts FakeCuda::Counts() {
  State& state = TheState();
  MutexLock lock(state.mutex);
  return state.counts;
}

void FakeCuda::FailNext(absl::string_view function, CudaError error) {
  State& state = TheState();
  MutexLock lock(state.mutex);
  state.failures[std::string(function)] = error;
}

void FakeCuda::BeginCapture(CUstream_st* stream) {
  const std::shared_ptr<FakeStream> origin = Find(stream);
  ++captures_on[origin->device()];
  origin->BeginCapture(std::make_shared<FakeCapture>(origin.get()));
}

CudaError FakeCuda::EndCapture(CUstream_st* stream, FakeGraph* graph) {
  const std::shared_ptr<FakeStream> origin = Find(stream);
  const bool is_invalid = invalidated_on[origin->device()];
  if (--captures_on[origin->device()] == 0) invalidated_on[origin->device()] = false;
  const std::shared_ptr<FakeCapture> capture = origin->capture();
  std::vector<std::shared_ptr<FakeStream>> streams;
  {
    State& state = TheState();
    MutexLock lock(state.mutex);
    for (const auto& [handle, each] : state.streams) streams.push_back(each);
  }
  for (const std::shared_ptr<FakeStream>& each : streams) {
    if (each->capture() == capture) each->EndCapture();
  }
  bool ok = false;
  *graph = capture->End(&ok);
  if (is_invalid) return kCaptureInvalidated;
  return ok ? kCudaSuccess : kCaptureUnjoined;
}

bool FakeCuda::IsCaptured(CUstream_st* stream) {
  const std::shared_ptr<FakeStream> found = Find(stream);
  return found != nullptr && found->capture() != nullptr;
}

void FakeCuda::LaunchGraph(const FakeGraph& graph, CUstream_st* stream) {
  Launch(stream, [graph] {
    for (const std::function<void()>& work : graph) work();
  });
}

}  // namespace tutti
