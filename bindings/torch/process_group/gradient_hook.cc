#include "bindings/torch/process_group/gradient_hook.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "bindings/torch/process_group/interpreter_exit.h"
#include "bindings/torch/process_group/interrupt.h"
#include "bindings/torch/process_group/memory.h"
#include "bindings/torch/process_group/tensors.h"
#include "bindings/torch/process_group/work.h"
#include "tutti/torch/errors.h"
#include "tutti/torch/streams.h"

namespace tutti::dist {
namespace {

class GradientHook : public ::c10d::CommHookInterface {
 public:
  explicit GradientHook(std::shared_ptr<GradientExchange> exchange) : exchange_(std::move(exchange)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(::c10d::GradBucket& bucket) override {
    return exchange_->Exchange(bucket);
  }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return ::c10d::detail::parseCppCommHookResult(result);
  }

 private:
  const std::shared_ptr<GradientExchange> exchange_;
};

bool Equal(const BucketContents& a, const BucketContents& b) {
  return a.dtype == b.dtype && a.parameters.size() == b.parameters.size() &&
         std::equal(a.parameters.begin(), a.parameters.end(), b.parameters.begin(),
                    [](const auto& x, const auto& y) { return x.key == y.key && x.count == y.count; });
}

}  // namespace

std::shared_ptr<GradientExchange> GradientExchange::Create(ProcessGroupTutti& group, const NamedParameters& parameters,
                                                           const std::string& strategy) {
  const at::Device device = parameters.empty() ? at::Device(at::kCPU) : parameters[0].second.device();
  std::unique_ptr<Communicator> communicator = group.NewCommunicator(device);
  const MemoryKind memory = device.is_cuda() ? MemoryKind::kDevice : MemoryKind::kHost;
  std::unique_ptr<BucketExchange> exchange = nn::ValueOrThrow(BucketExchange::Create(*communicator, strategy, memory));
  return std::make_shared<GradientExchange>(
      std::move(communicator), std::move(exchange), parameters,
      device.is_cuda() ? std::optional(group.ResultsStream(device)) : std::nullopt);
}

GradientExchange::GradientExchange(std::unique_ptr<Communicator> communicator, std::unique_ptr<BucketExchange> exchange,
                                   const NamedParameters& parameters, std::optional<c10::Stream> results)
    : live_(std::make_shared<EndsWithInterpreter<Live>>(
          std::make_shared<Live>(Live{std::move(communicator), std::move(exchange)}), "exchange")),
      results_(results) {
  for (const auto& [name, parameter] : parameters) {
    names_[parameter.unsafeGetTensorImpl()] = name;
    parameters_.push_back(parameter);
  }
  Track(this, live_);
}

// Whoever leaves a group waits for the group's threads, one of which may need the interpreter's lock.
GradientExchange::~GradientExchange() {
  Untrack(this);
  const WithoutInterpreterLock without_lock;
  live_->End();
}

void GradientExchange::Register(const std::shared_ptr<GradientExchange>& exchange, ::c10d::Reducer& reducer) {
  reducer.register_comm_hook(std::make_unique<GradientHook>(exchange));
}

BucketContents GradientExchange::ContentsOf(const ::c10d::GradBucket& bucket) const {
  const std::optional<DType> dtype = DTypeOf(bucket.getBuffer().scalar_type());
  TORCH_CHECK_TYPE(dtype.has_value(), "tutti: gradients of ", bucket.getBuffer().scalar_type(), " are not supported");
  BucketContents contents = {.dtype = *dtype, .parameters = {}};
  for (const at::Tensor& parameter : bucket.getParameters()) {
    const auto named = names_.find(parameter.unsafeGetTensorImpl());
    TORCH_CHECK_VALUE(named != names_.end(), "tutti: DDP exchanges a gradient of shape ", parameter.sizes(),
                      " whose parameter was not there at tutti.torch.register");
    contents.parameters.push_back({.key = named->second, .count = parameter.numel()});
  }
  return contents;
}

void GradientExchange::SetBucket(int index, BucketContents contents, const at::Tensor& buffer) {
  nn::ThrowIfError(live()->exchange->SetBucket(index, contents, buffer.mutable_data_ptr()));
  // The parameters of this bucket have left the buckets that held them before; these buckets must be set anew.
  if (index >= static_cast<int>(buckets_.size())) buckets_.resize(index + 1);
  for (BucketContents& other : buckets_) {
    const bool lost = std::any_of(other.parameters.begin(), other.parameters.end(), [&](const auto& held) {
      return std::any_of(contents.parameters.begin(), contents.parameters.end(),
                         [&](const auto& taken) { return taken.key == held.key; });
    });
    if (lost) other = {};
  }
  buckets_[index] = std::move(contents);
}

c10::intrusive_ptr<c10::ivalue::Future> GradientExchange::Exchange(::c10d::GradBucket& bucket) {
  const auto index = static_cast<int>(bucket.getIndex());
  const at::Tensor& buffer = bucket.getBuffer();
  CheckTensor("exchange of gradients", "bucket", buffer);
  const at::Device device = results_.has_value() ? results_->device() : at::Device(at::kCPU);
  TORCH_CHECK_VALUE(buffer.device() == device, "tutti: DDP exchanges gradients on ", buffer.device(),
                    ", and at tutti.torch.register the model was on ", device);
  BucketContents contents = ContentsOf(bucket);
  // In the arena exchanges on the CPU need no copies. DDP has just filled the bucket, so only a hook of the user on one
  // of its gradients can have seen the old address. Where the arena has no room, SetBucket says so on every rank.
  const std::shared_ptr<Live> live = this->live();
  MoveToArena(*live->communicator, buffer);
  if (index >= static_cast<int>(buckets_.size()) || !Equal(contents, buckets_[index])) {
    SetBucket(index, std::move(contents), buffer);
  }
  Calls calls = {.outputs = {buffer}};
  calls.works.push_back(live->exchange->Exchange(index, buffer.mutable_data_ptr(), absl::ZeroDuration(),
                                                 nn::CurrentStreamHandle(device)));
  return c10::make_intrusive<ProcessGroupWork>(std::move(calls), ::c10d::OpType::ALLREDUCE, "tutti:exchange_gradients",
                                               static_cast<std::uint64_t>(step()),
                                               std::make_shared<const std::string>(), nullptr, results_)
      ->getFuture();
}

std::string GradientExchange::strategy() const { return live()->exchange->strategy(); }
std::int64_t GradientExchange::step() const { return live()->exchange->step(); }
std::string GradientExchange::SaveState() const { return nn::ValueOrThrow(live()->exchange->SaveState()); }
void GradientExchange::LoadState(const std::vector<std::string>& states) {
  nn::ThrowIfError(live()->exchange->LoadState(states));
}
void GradientExchange::SetLossScale(double scale) { nn::ThrowIfError(live()->exchange->SetLossScale(scale)); }

}  // namespace tutti::dist
