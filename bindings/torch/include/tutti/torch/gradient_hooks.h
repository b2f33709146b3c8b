// Hooks into the gradients of one module, which bring them from autograd into the buckets.
#ifndef TUTTI_TORCH_GRADIENT_HOOKS_H_
#define TUTTI_TORCH_GRADIENT_HOOKS_H_

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tutti/algorithm.h"
#include "tutti/synchronizer.h"
#include "tutti/torch/backward_scope.h"
#include "tutti/torch/errors.h"
#include "tutti/torch/streams.h"
#include "tutti/torch/tensors.h"

namespace tutti::nn {

// One trained parameter.
struct Trained {
  // The contents of p.grad() that are equal on all ranks since the last backward that exchanged them.
  enum class Exchanged : std::uint8_t { kNothing, kGradient, kMomentum };

  torch::Tensor parameter;
  torch::Tensor gradient;  // the gradient's memory in the bucket; undefined when only weights are exchanged
  Exchanged exchanged = Exchanged::kNothing;
};

// Puts gradients into their buckets and lets buckets leave as autograd completes them. Used on the thread of
// backward(); for parameters on a GPU, that is autograd's thread for this GPU while the caller of backward() waits.
class GradientHooks : private BackwardScope::Owner {
 public:
  // `may_begin` is called before each backward; its error is thrown out of backward(). `keep`, if it is not null,
  // returns what must live until the backward is over. All arguments must outlive the hooks.
  GradientHooks(Synchronizer& synchronizer, const ErrorPlace& place, const std::vector<torch::Tensor>& parameters,
                bool allow_unused, std::function<absl::Status()> may_begin,
                std::function<std::shared_ptr<void>()> keep);
  ~GradientHooks() override;
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  // Whether some GradientHooks have a hook at `parameter`.
  static bool Hooks(const torch::Tensor& parameter);

  const std::vector<Trained>& trained() const { return trained_; }
  // Tells that the backward under way exchanges momentum in place of gradients.
  void set_exchanges_momentum() { exchanges_ = Trained::Exchanged::kMomentum; }

  // To be called before an optimizer uses the gradients: FailedPrecondition when an exception has ended the last
  // backward.
  absl::Status CheckNotAbandoned();
  // Lets the synchronizer give up a backward that an exception has ended; CheckNotAbandoned stays an error.
  void GiveUpAbandoned() {
    if (scope_.Abandoned()) CancelBackward();
  }
  // To be called where a forward begins: an exception has then ended a backward() that waits for its outer one, unless
  // a node of that outer one calls the forward.
  void NoteForward() {
    if (torch::autograd::get_current_graph_task_id() < 0) (void)scope_.Abandoned();
  }
  // How many backward() have exchanged gradients.
  std::int64_t exchanged_backwards() const { return exchanged_backwards_; }
  // To be called before or after an optimizer uses the gradients: FailedPrecondition names a gradient that is this
  // rank's alone. `used`: exchanged_backwards() when the optimizer used gradients before, 0 if it has not.
  absl::Status CheckExchanged(std::int64_t used);

 private:
  // The hook of a parameter belongs to the parameter's gradient accumulator, where any number of hooks have their
  // place. (A parameter itself has one place, which belongs to the user: register_post_accumulate_grad_hook of Python.)
  // The accumulator calls its hooks after that of the user, which may therefore still change the gradient.
  struct Hook : torch::autograd::FunctionPostHook {
    Hook(GradientHooks& its_owner, int its_index) : owner(its_owner), i(its_index) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list& inputs) override {
      owner.OnGradient(i, inputs[0].defined());
      return outputs;
    }

    GradientHooks& owner;
    const int i;
  };
  // The accumulator of a parameter, which the parameter does not keep alive, and the number of its hook there.
  struct Accumulator {
    decltype(torch::autograd::impl::grad_accumulator(torch::Tensor())) node;
    std::uintptr_t hook = 0;
  };
  // The parameters of this process that have a hook of some GradientHooks. An accumulator would not tell: torch::load
  // gives a parameter a new one, to which the hook moves in the next backward().
  struct Hooked {
    std::mutex mutex;
    std::unordered_set<const c10::TensorImpl*> parameters;
  };

  static Hooked& AllHooked();

  void OnGradient(int i, bool has_come);
  void FollowMoves();
  void BeforeGradient(int i);
  void FollowAccumulator(int i);
  void CountOnce(int i);
  void MoveIntoBucket(int i);
  void SetToZero(int i);
  void MarkReady(int i);

  void BeginBackward() override;
  bool HasAllGradients() override { return synchronizer_.MissingGradients().empty(); }
  void ContributeUnused() override;
  void FinishBackward() override;
  void CancelBackward() override {
    FollowStream(synchronizer_, device_);
    place_.ThrowIfError(synchronizer_.CancelBackward());
  }
  std::shared_ptr<void> KeepForBackward() override { return keep_ == nullptr ? nullptr : keep_(); }

  const std::string& NameOf(int i) const { return synchronizer_.parameters()[i].name; }

  Synchronizer& synchronizer_;
  const ErrorPlace& place_;
  const torch::Device device_;
  const bool allow_unused_;
  const std::function<absl::Status()> may_begin_;
  const std::function<std::shared_ptr<void>()> keep_;
  std::int64_t moves_ = 0;  // those of the synchronizer when the views were taken
  bool sums_ = false;       // the strategy adds gradients up, and does not divide
  bool momentum_ = false;   // the strategy exchanges momentum in some steps
  std::vector<Trained> trained_;
  std::vector<Accumulator> accumulators_;
  std::vector<unsigned> before_;  // torch's numbers of the hooks that run before autograd adds to p.grad()
  // The hooks reach this object by weak pointers to `self_`: torch may keep a hook longer than this object lives.
  const std::shared_ptr<GradientHooks*> self_ = std::make_shared<GradientHooks*>(this);
  BackwardScope scope_{*this};
  Trained::Exchanged exchanges_ = Trained::Exchanged::kNothing;  // what the backward under way exchanges
  std::vector<int> unused_;                                      // parameters to which it gave no gradient
  std::int64_t exchanged_backwards_ = 0;
  bool accumulates_ = false;  // the last backward kept gradients on this rank that must still be exchanged
};

inline GradientHooks::GradientHooks(Synchronizer& synchronizer, const ErrorPlace& place,
                                    const std::vector<torch::Tensor>& parameters, bool allow_unused,
                                    std::function<absl::Status()> may_begin,
                                    std::function<std::shared_ptr<void>()> keep)
    : synchronizer_(synchronizer),
      place_(place),
      device_(DeviceOf(parameters)),
      allow_unused_(allow_unused),
      may_begin_(std::move(may_begin)),
      keep_(std::move(keep)) {
  const Strategy strategy = ValueOrThrow(ParseStrategy(synchronizer.strategy()));
  momentum_ = strategy.algorithm->exchanges == Exchanges::kMomentum;
  sums_ = !Averages(strategy);
  for (const torch::Tensor& parameter : parameters) {
    const int i = static_cast<int>(trained_.size());
    Trained& trained = trained_.emplace_back(Trained{.parameter = parameter, .gradient = {}});
    if (std::shared_ptr<void> view = synchronizer_.GradientView(i)) {
      trained.gradient = GradientAlias(std::move(view), parameter);
    }
    accumulators_.push_back({torch::autograd::impl::grad_accumulator(parameter)});
    accumulators_.back().hook = accumulators_.back().node->add_post_hook(std::make_unique<Hook>(*this, i));
    before_.push_back(parameter.register_hook([owner = std::weak_ptr(self_), i](const torch::Tensor& /*gradient*/) {
      const auto hooks = owner.lock();
      if (hooks != nullptr && AccumulatesGradient()) (*hooks)->BeforeGradient(i);
    }));
  }
  Hooked& hooked = AllHooked();
  const std::lock_guard lock(hooked.mutex);
  for (const torch::Tensor& parameter : parameters) hooked.parameters.insert(parameter.unsafeGetTensorImpl());
}

inline GradientHooks::~GradientHooks() {
  {
    Hooked& hooked = AllHooked();
    const std::lock_guard lock(hooked.mutex);
    for (const Trained& trained : trained_) hooked.parameters.erase(trained.parameter.unsafeGetTensorImpl());
  }
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    accumulators_[i].node->del_post_hook(accumulators_[i].hook);
    // A computation that has written the parameter has left torch no way to the hook, which does nothing from now on.
    if (!trained_[i].parameter.is_leaf()) continue;
    try {
      trained_[i].parameter.remove_hook(before_[i]);
    } catch (const c10::Error&) {  // the parameter was made a leaf again
    }
  }
}

inline GradientHooks::Hooked& GradientHooks::AllHooked() {
  static Hooked* const hooked = new Hooked;  // hooks that end after main() still use it
  return *hooked;
}

inline bool GradientHooks::Hooks(const torch::Tensor& parameter) {
  Hooked& hooked = AllHooked();
  const std::lock_guard lock(hooked.mutex);
  return hooked.parameters.count(parameter.unsafeGetTensorImpl()) > 0;
}

// Called when the gradient of one parameter is complete: in its bucket, or, after zero_grad(), in another tensor. Where
// autograd's gradient was undefined (`has_come` is false), p.grad() is what it was before.
inline void GradientHooks::OnGradient(int i, bool has_come) {
  // FinishBackward waits for no parameter without elements, so that its gradient may come when backward has ended.
  if (trained_[i].parameter.numel() == 0) return;
  scope_.Enter();
  if (!trained_[i].gradient.defined()) return;  // only weights are exchanged
  if (!has_come && !trained_[i].parameter.grad().defined()) {
    if (allow_unused_) return;  // FinishBackward contributes for the parameter
    SetToZero(i);
  }
  MoveIntoBucket(i);
  MarkReady(i);
}

// Gives p.grad() the value 0 in the bucket.
inline void GradientHooks::SetToZero(int i) {
  torch::NoGradGuard no_grad;
  trained_[i].gradient.zero_();
  trained_[i].parameter.mutable_grad() = trained_[i].gradient;
}

// On a GPU the gradient is complete once the stream has come to what autograd has just enqueued.
inline void GradientHooks::MarkReady(int i) {
  if (device_.is_cpu()) return synchronizer_.MarkReady(i);
  synchronizer_.MarkReady(i, CurrentStreamHandle(device_));
}

// Copies p.grad() into the bucket: one copy costs less than zeroing the bucket beforehand and adding to it.
inline void GradientHooks::MoveIntoBucket(int i) {
  Trained& trained = trained_[i];
  torch::Tensor& grad = trained.parameter.mutable_grad();
  if (grad.is_same(trained.gradient)) return;
  if (!grad.defined()) {
    place_.ThrowIfError(absl::FailedPreconditionError(absl::StrCat(
        "parameter ", NameOf(i), ": a hook of yours has taken the gradient away before the ranks could exchange it")));
  }
  if (grad.layout() != torch::kStrided) {
    place_.ThrowIfError(absl::UnimplementedError(
        absl::StrCat("parameter ", NameOf(i), " has a sparse gradient, and only dense ones can be exchanged: make its ",
                     "embedding with sparse(false) (in Python: sparse=False)")));
  }
  if (grad.requires_grad()) {
    place_.ThrowIfError(absl::UnimplementedError(absl::StrCat(
        "parameter ", NameOf(i),
        ": backward() was called with create_graph=true (in Python: True), and gradients that ",
        "are exchanged have no graph: compute the gradients that you derive once more by torch::autograd::grad (in ",
        "Python: torch.autograd.grad)")));
  }
  if (grad.scalar_type() != trained.gradient.scalar_type()) {
    place_.ThrowIfError(absl::UnimplementedError(
        absl::StrCat("parameter ", NameOf(i), " is ", c10::toString(trained.gradient.scalar_type()),
                     " and its gradient is ", c10::toString(grad.scalar_type()),
                     ", but gradients travel in the type of their parameter: leave grad_dtype as it is")));
  }
  torch::NoGradGuard no_grad;
  trained.gradient.copy_(grad);
  grad = trained.gradient;
}

// Called when autograd is about to add to p.grad().
inline void GradientHooks::BeforeGradient(int i) {
  FollowAccumulator(i);
  if (trained_[i].parameter.numel() == 0) return;
  // The synchronizer must know of the backward before anything is added: it zeroes sums, and what buckets have brought
  // that left before an exception.
  if (sums_ || scope_.FollowsAbandoned()) scope_.Enter();
  if (sums_ || momentum_) CountOnce(i);
}

// Moves the hook of a parameter to the accumulator that is about to run: torch::load, which replaces the parameter's
// memory, gives the parameter a new accumulator.
inline void GradientHooks::FollowAccumulator(int i) {
  Accumulator& accumulator = accumulators_[i];
  const auto runs = torch::autograd::get_current_node();
  if (runs == accumulator.node) return;
  accumulator.node->del_post_hook(accumulator.hook);
  accumulator.node = runs;
  accumulator.hook = runs->add_post_hook(std::make_unique<Hook>(*this, i));
}

// Makes the values that p.grad() holds from the last exchange, equal on all ranks, count once in the next exchange.
inline void GradientHooks::CountOnce(int i) {
  const auto holds = std::exchange(trained_[i].exchanged, Trained::Exchanged::kNothing);
  const torch::Tensor& grad = trained_[i].parameter.grad();
  if (holds == Trained::Exchanged::kNothing || !grad.defined()) return;
  torch::NoGradGuard no_grad;
  if (holds == Trained::Exchanged::kMomentum && grad.any().item<bool>()) {
    place_.ThrowIfError(absl::FailedPreconditionError(absl::StrCat(
        "parameter ", NameOf(i), ": p.grad() holds the momentum of an earlier backward(), to which no gradient can be ",
        "added: call zero_grad() in every step, and let all but the last backward() of a step run under NoSync "
        "(no_sync of "
        "Python)")));
  }
  if (sums_ && place_.rank() != 0) grad.zero_();  // rank 0 contributes the values
}

// Contributes for the parameters to which this backward gave no gradient.
inline void GradientHooks::ContributeUnused() {
  if (!allow_unused_) return;
  FollowStream(synchronizer_, device_);
  unused_ = synchronizer_.MissingGradients();
  for (const int i : unused_) {
    if (trained_[i].parameter.grad().defined()) {  // accumulated earlier
      CountOnce(i);
      MoveIntoBucket(i);
      MarkReady(i);
    } else {
      torch::NoGradGuard no_grad;
      trained_[i].gradient.zero_();
    }
  }
}

inline void GradientHooks::BeginBackward() {
  place_.ThrowIfError(may_begin_());
  const bool exchanges_gradients = synchronizer_.exchanges_gradients();
  accumulates_ = exchanges_gradients && !synchronizer_.synchronize();
  exchanges_ = exchanges_gradients && !accumulates_ ? Trained::Exchanged::kGradient : Trained::Exchanged::kNothing;
  FollowStream(synchronizer_, device_);
  place_.ThrowIfError(synchronizer_.BeginBackward());
  FollowMoves();
}

// Takes new views when autotuning has moved the gradients. A p.grad() in the old memory is copied by its hook, as any
// other tensor.
inline void GradientHooks::FollowMoves() {
  if (std::exchange(moves_, synchronizer_.moves()) == synchronizer_.moves()) return;
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    trained_[i].gradient = GradientAlias(synchronizer_.GradientView(static_cast<int>(i)), trained_[i].parameter);
  }
}

inline void GradientHooks::FinishBackward() {
  FollowStream(synchronizer_, device_);
  place_.ThrowIfError(synchronizer_.FinishBackward());
  if (exchanges_ == Trained::Exchanged::kNothing) return;
  ++exchanged_backwards_;
  // A gradient stays undefined where no rank has one, so that optimizers leave the parameter alone.
  for (const int i : unused_) {
    if (synchronizer_.used(i)) trained_[i].parameter.mutable_grad() = trained_[i].gradient;
  }
  if (!sums_ && !momentum_) return;
  for (Trained& trained : trained_) trained.exchanged = exchanges_;
}

inline absl::Status GradientHooks::CheckNotAbandoned() {
  if (!scope_.Abandoned() || !synchronizer_.exchanges_gradients()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "an exception has ended the last backward(), so the gradients of some parameters are missing or were not "
      "exchanged: on all ranks, call zero_grad() and repeat it before the step");
}

inline absl::Status GradientHooks::CheckExchanged(std::int64_t used) {
  if (!synchronizer_.exchanges_gradients()) return absl::OkStatus();
  if (absl::Status ended = CheckNotAbandoned(); !ended.ok()) return ended;
  if (accumulates_) {
    return absl::FailedPreconditionError(
        "the gradients of this step were accumulated under NoSync (no_sync of Python) and not exchanged: let the last "
        "backward() of a step run without it");
  }
  const bool exchanged = exchanged_backwards_ > used;
  for (int i = 0; !exchanged && i < static_cast<int>(trained_.size()); ++i) {
    const torch::Tensor& grad = trained_[i].parameter.grad();
    // A gradient without elements is the same on all ranks.
    if (!grad.defined() || grad.numel() == 0 || grad.is_same(trained_[i].gradient)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("parameter ", NameOf(i),
                     ": the gradient was not made by a backward() since the last step, and is the gradient of this ",
                     "rank alone: call loss.backward(), which exchanges gradients, and not torch::autograd::grad"));
  }
  return absl::OkStatus();
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_GRADIENT_HOOKS_H_
