#include "bindings/torch/process_group/gradient_hook.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "bindings/torch/process_group/errors.h"
#include "bindings/torch/process_group/interpreter_exit.h"
#include "bindings/torch/process_group/interrupt.h"
#include "bindings/torch/process_group/memory.h"
#include "bindings/torch/process_group/tensors.h"
#include "bindings/torch/process_group/work.h"
#include "tutti/torch/errors.h"
#include "tutti/torch/parameter_facts.h"
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
  const auto trained = std::find_if(parameters.begin(), parameters.end(),
                                    [](const auto& named) { return named.second.requires_grad(); });
  const at::Device device = trained == parameters.end() ? at::Device(at::kCPU) : trained->second.device();
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
      results_(results),
      parameters_(parameters) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].second;
    const bool is_first = places_.try_emplace(parameter.unsafeGetTensorImpl(), i).second;
    if (is_first && !parameter.requires_grad()) frozen_.push_back(i);
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
  const at::Tensor& buffer = bucket.getBuffer();
  const std::optional<DType> dtype = DTypeOf(buffer.scalar_type());
  TORCH_CHECK_TYPE(dtype.has_value(), "tutti: gradients of ", buffer.scalar_type(), " are not supported");
  BucketContents contents = {.dtype = *dtype, .parameters = {}};
  std::int64_t count = 0;
  for (const at::Tensor& parameter : bucket.getParameters()) {
    const auto place = places_.find(parameter.unsafeGetTensorImpl());
    TORCH_CHECK_VALUE(place != places_.end(), "tutti: DDP exchanges a gradient of shape ", parameter.sizes(),
                      " whose parameter was not there at tutti.torch.register");
    // DDP's buckets of complex gradients hold their real and imaginary parts.
    const int parts = parameter.is_complex() && !buffer.is_complex() ? 2 : 1;
    contents.parameters.push_back({.key = parameters_[place->second].first, .count = parts * parameter.numel()});
    count += contents.parameters.back().count;
  }
  TORCH_CHECK(count == buffer.numel(), "tutti: DDP's bucket ", bucket.getIndex(), " has ", buffer.numel(),
              " elements, and its parameters have ", count);
  return contents;
}

void GradientExchange::CheckFrozen() const {
  for (const std::size_t place : frozen_) {
    const auto& [name, parameter] = parameters_[place];
    if (parameter.requires_grad()) nn::ThrowIfError(nn::ParameterWasChanged(name, nn::kUnfrozen));
  }
}

std::string GradientExchange::NamesOf(const ::c10d::GradBucket& bucket) const {
  std::set<std::size_t> places;
  for (const at::Tensor& parameter : bucket.getParameters()) places.insert(places_.at(parameter.unsafeGetTensorImpl()));
  if (places.empty()) return "";
  const std::string& first = parameters_[*places.begin()].first;
  return places.size() == 1 ? first : absl::StrCat(first, " … ", parameters_[*places.rbegin()].first);
}

std::string GradientExchange::WaitedFor(int index, const std::string& names) const {
  return absl::StrCat("; the training waited for bucket ", index, " (parameters ", names, ") in training step ",
                      training_step_, " (from 0 on)");
}

void GradientExchange::SetBucket(::c10d::GradBucket& bucket, BucketContents contents) {
  const auto index = static_cast<int>(bucket.getIndex());
  std::string names = NamesOf(bucket);
  const absl::Status status = live()->exchange->SetBucket(index, contents, bucket.getBuffer().mutable_data_ptr());
  if (!status.ok()) {
    std::rethrow_exception(ExceptionOf(status, absl::IsDeadlineExceeded(status) ? WaitedFor(index, names) : ""));
  }
  // The parameters of this bucket have left the buckets that held them before; these buckets must be set anew.
  if (index >= static_cast<int>(buckets_.size())) buckets_.resize(index + 1);
  for (Bucket& other : buckets_) {
    const std::vector<BucketParameter>& before = other.contents.parameters;
    const bool lost = std::any_of(before.begin(), before.end(), [&](const auto& held) {
      return std::any_of(contents.parameters.begin(), contents.parameters.end(),
                         [&](const auto& taken) { return taken.key == held.key; });
    });
    if (lost) other = {};
  }
  buckets_[index] = {.contents = std::move(contents), .names = std::move(names)};
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
  if (index == 0) {  // DDP hands over its buckets in their order
    CheckFrozen();
    training_step_ = step();
  }
  if (index >= static_cast<int>(buckets_.size()) || !Equal(contents, buckets_[index].contents)) {
    SetBucket(bucket, std::move(contents));
  }
  Calls calls = {.outputs = {buffer}};
  calls.works.push_back(live->exchange->Exchange(index, buffer.mutable_data_ptr(), absl::ZeroDuration(),
                                                 nn::CurrentStreamHandle(device)));
  return c10::make_intrusive<ProcessGroupWork>(
             std::move(calls), ::c10d::OpType::ALLREDUCE, "tutti:exchange_gradients",
             static_cast<std::uint64_t>(step()),
             std::make_shared<const std::string>(WaitedFor(index, buckets_[index].names)), nullptr, results_)
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
