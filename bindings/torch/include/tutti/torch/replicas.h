// Replicas keeps the replicas of one model in step: the policy that every adapter has in common. To Replicas a model is
// a list of named parameters and buffers, which a torch::nn::Module (tutti::nn::DataParallel) or a module of Python
// (tutti.torch.DistributedDataParallel) holds.
#ifndef TUTTI_TORCH_REPLICAS_H_
#define TUTTI_TORCH_REPLICAS_H_

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "tutti/agreement.h"
#include "tutti/communicator.h"
#include "tutti/schedule.h"
#include "tutti/synchronizer.h"
#include "tutti/torch/buffers.h"
#include "tutti/torch/errors.h"
#include "tutti/torch/gradient_hooks.h"
#include "tutti/torch/streams.h"
#include "tutti/torch/tensors.h"
#include "tutti/torch/weights_watch.h"
#include "tutti/tuning.h"

namespace tutti::nn {

// Options with the fields and defaults of SynchronizerOptions, and those that only models have.
struct ReplicasOptions {
  std::string strategy = SynchronizerOptions().strategy;
  std::int64_t bucket_bytes = SynchronizerOptions().bucket_bytes;
  std::int64_t first_bucket_bytes = SynchronizerOptions().first_bucket_bytes;
  bool allow_unused = SynchronizerOptions().allow_unused;
  // How ranks keep the model's buffers equal; the same on all ranks.
  Buffers buffers = Buffers::kBroadcast;
  // Whether to try in the first steps how gradients travel fastest (docs/autotuning.md); not given: TUTTI_AUTOTUNE.
  std::optional<bool> autotune = std::nullopt;
};

// A model as an adapter describes it to Replicas.
struct ReplicatedModel {
  // In the order of their use in forward; a tensor under two names counts once, under the first.
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  // Checks that the model still consists of these tensors; called in every step, so it should be cheap.
  std::function<absl::Status()> check;
  // Returns an object that must live until the backward() that begins is over, and whose end may wait. Null: there is
  // none.
  std::function<std::shared_ptr<void>()> keep;
  // What a user should do, in the words of the adapter's language: after weights were written outside of an update, and
  // after a weight was moved to other memory.
  std::string advice_when_written;
  std::string advice_when_moved;
};

// The calls of one step, on every rank, from one thread:
//
//   loss.backward();                 // hooks put gradients into buckets, which leave while backward still runs
//   replicas.BeginUpdate(true);      // weights may now be a mix of those of several ranks
//   … the optimizer changes the weights …
//   replicas.EndUpdate();            // weights may be changed once more; the next exchange of weights begins
//
// With a strategy that exchanges weights, BeginUpdate, EndUpdate, Flush and LoadState count as writes of all weights:
// a backward() through a forward of before is torch's error that a variable was modified by an inplace operation.
// Broadcast counts as a write of all that it overwrites, with every strategy.
//
// Errors are exceptions (errors.h). Not thread-safe; every backward() runs on the thread that makes these calls.
class Replicas {
 public:
  // Collective; overwrites the model by that of rank 0, as Broadcast does. `communicator` must outlive the Replicas.
  Replicas(Communicator& communicator, ReplicatedModel model, const ReplicasOptions& options);
  // All ranks must destroy their Replicas at the same step (`async`: at any step after its warm-up), or after an error.
  ~Replicas();
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  // Tells which tensors the model's buffers are from here on: a model may give a name another tensor. Sends nothing;
  // the next call that makes buffers equal compares over the ranks what buffers there are, if that has changed, so all
  // ranks change it before the same call. Buffers that cannot be exchanged are an error of that call, on all ranks.
  // Does nothing with Buffers::kLeave.
  void SetBuffers(const std::vector<NamedTensor>& buffers);
  // Overwrites the model by that of rank 0, without its buffers where each rank has its own (Buffers::kLeave), and
  // starts the strategy anew. Collective.
  void Broadcast();
  // Gives `state`, that of an optimizer, the value that rank 0 has. Collective.
  void BroadcastOptimizerState(std::string& state);

  // Ends the last backward() and does to the weights what the strategy does before an optimizer. `uses_gradients`: the
  // update begins with the gradients that are there, which must be exchanged; otherwise the update calls backward().
  // An update that was begun and never ended counts as one that an exception has ended. `optimizer` is a number for the
  // optimizer whose step the update is, so that several optimizers may use the gradients of one backward(), each once;
  // 0: the update uses the gradients of all parameters.
  void BeginUpdate(bool uses_gradients, std::uintptr_t optimizer = 0);
  // Does to the weights what the strategy does after an optimizer, and makes the buffers equal.
  void EndUpdate();
  // Tells that an exception has ended the update, which may be repeated from the weights that are there.
  void CancelUpdate();
  // Whether an update is under way.
  bool updating() const { return updating_; }

  // Gives all ranks the average of their weights and makes buffers equal. Collective.
  void Flush();
  // Whether a backward() has exchanged gradients since buffers were made equal: where optimizers make their steps
  // outside of updates, SynchronizeBuffers is then called before the next forward. Equal on all ranks.
  bool buffers_are_due() const {
    return buffer_mode_ != Buffers::kLeave && gradients_->exchanged_backwards() > equal_after_ &&
           synchronizer_->steps_together();
  }
  // Makes buffers equal. Collective.
  void SynchronizeBuffers();
  // Whether `mine` is true on any rank. See Synchronizer::AgreeOnOverflow.
  bool AgreeOnOverflow(bool mine) { return ValueOrThrow(synchronizer_->AgreeOnOverflow(mine)); }
  // To be called where a forward of the model begins: see GradientHooks::NoteForward.
  void NoteForward() { gradients_->NoteForward(); }
  // Declares the scale of the losses: see Synchronizer::SetLossScale.
  void SetLossScale(double scale) {
    gradients_->GiveUpAbandoned();  // the scale may change between steps
    place_->ThrowIfError(synchronizer_->SetLossScale(scale));
  }

  // The state of the Synchronizer; SaveState throws after an exchange or a Broadcast that failed. LoadState is
  // collective and comes last, after the weights were restored.
  std::string SaveState() const { return place_->SavedOrThrow(is_half_broadcast_ ? "" : synchronizer_->SaveState()); }
  void LoadState(const std::vector<std::string>& states);

  // Throws, on every rank, the mistakes that ranks have found in arguments of `call`; empty: none. Collective.
  void AgreeOnMistake(const std::string& call, const std::string& mistake);
  // Whether `mine` is true on any rank. Collective.
  bool OnAnyRank(bool mine);

  // Whether weights that are exchanged were written since the last update, other than by an update.
  bool WeightsWereWritten() { return weights_.has_value() && weights_->FindWritten() != WeightsWatch::kNone; }

  // Throws, naming a rank and a tensor, unless parameters and buffers are equal on all ranks; looks at no buffers where
  // each rank has its own (Buffers::kLeave). With a strategy that exchanges weights they are equal after Flush; buffers
  // that a forward changes are equal from EndUpdate or Flush to the next forward. Collective.
  void CheckReplicas();

  // The statistics of the synchronizer since the last call; times include those of calls that Replicas makes itself,
  // for buffers among others.
  SyncStatistics TakeStatistics();

  // Where the parameters are that are trained.
  torch::Device device() const { return device_; }
  Synchronizer& synchronizer() { return *synchronizer_; }
  const Synchronizer& synchronizer() const { return *synchronizer_; }
  GradientHooks& gradients() { return *gradients_; }
  const ErrorPlace& place() const { return *place_; }

 private:
  absl::StatusOr<std::vector<Parameter>> FindTensors();
  std::vector<NamedTensor> Replicated() const;
  void BeginForward();
  absl::Status MayBeginBackward();
  absl::Status CheckWeights() const;
  absl::Status CheckPlaces() const;
  absl::Status ErrorOfWriting(int parameter) const;
  void CountWrites();
  std::int64_t UsedBackwards() const;
  template <typename Call>
  auto Timed(const Call& call);

  Communicator& communicator_;
  const Buffers buffer_mode_;
  ReplicatedModel model_;
  torch::Device device_ = torch::kCPU;  // of all parameters that are trained
  std::unique_ptr<Synchronizer> synchronizer_;
  std::vector<NamedTensor> parameters_;  // each once
  std::vector<NamedTensor> buffers_;     // each once, and none that is a parameter; none at all with kLeave
  AgreementFields frozen_;               // what all ranks have in common of parameters that are not trained
  AgreementFields buffers_in_words_;     // what all ranks have in common of `buffers_`
  absl::Status buffers_fit_;             // the error of a buffer that cannot be exchanged
  std::string changed_buffer_;           // a buffer that differs from what the ranks compared last
  bool buffers_changed_ = false;         // the ranks have not yet compared buffers_in_words_
  std::vector<torch::Tensor> trained_;
  std::optional<ErrorPlace> place_;
  std::optional<WeightsWatch> weights_;  // exists for strategies that exchange weights
  std::optional<GradientHooks> gradients_;
  const int exceptions_ = std::uncaught_exceptions();
  std::uintptr_t optimizer_ = 0;                              // of the update under way, or the last one
  std::unordered_map<std::uintptr_t, std::int64_t> used_by_;  // exchanged_backwards() at the last update of each
  std::int64_t equal_after_ = 0;                              // exchanged_backwards() when buffers were made equal
  bool is_half_broadcast_ = false;                            // the last Broadcast has failed in the middle
  bool updating_ = false;                                     // the weights change inside an update now
  bool update_failed_ = false;   // an exception, perhaps of a backward() inside it, has ended the last update
  bool steps_together_ = false;  // all ranks make the update under way together
  absl::Duration waited_;        // in calls that are not the synchronizer's, since TakeStatistics
};

inline Replicas::Replicas(Communicator& communicator, ReplicatedModel model, const ReplicasOptions& options)
    : communicator_(communicator), buffer_mode_(options.buffers), model_(std::move(model)) {
  absl::StatusOr<std::vector<Parameter>> found = FindTensors();
  ThrowIfError(Agree(communicator, "torch", {{"buffers", Name(buffer_mode_)}}, found.status()));
  const bool autotune = options.autotune.has_value() ? *options.autotune : ValueOrThrow(AutotunesByDefault());
  synchronizer_ =
      ValueOrThrow(Synchronizer::Create(communicator, *std::move(found),
                                        {.strategy = options.strategy,
                                         .bucket_bytes = options.bucket_bytes,
                                         .first_bucket_bytes = options.first_bucket_bytes,
                                         .allow_unused = options.allow_unused,
                                         .autotune = autotune,
                                         .memory = device_.is_cpu() ? MemoryKind::kHost : MemoryKind::kDevice}));
  place_.emplace(communicator, *synchronizer_);
  if (synchronizer_->exchanges_weights()) weights_.emplace(trained_);
  Broadcast();
  // The hooks come last: after a failure of the constructor, hooks would call an object that does not exist.
  gradients_.emplace(
      *synchronizer_, *place_, trained_, options.allow_unused, [this] { return MayBeginBackward(); }, model_.keep);
}

// Collects the tensors that ranks have in common; returns descriptions of the trained parameters.
inline absl::StatusOr<std::vector<Parameter>> Replicas::FindTensors() {
  std::vector<Parameter> descriptions;
  std::unordered_set<torch::TensorImpl*> seen;  // modules may share tensors
  for (const auto& [name, parameter] : model_.parameters) {
    if (!parameter.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    parameters_.push_back({name, parameter});
    if (!parameter.requires_grad()) {
      frozen_.emplace_back(absl::StrCat("parameter ", name), CommonOf(parameter));
      continue;
    }
    if (trained_.empty()) device_ = parameter.device();
    absl::StatusOr<Parameter> description = DescribeParameter(name, parameter, device_);
    if (!description.ok()) return description.status();
    if (GradientHooks::Hooks(parameter)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", name, " already has a hook for its gradient: is the module wrapped twice? The first ",
          "wrapper must be gone before the second is made"));
    }
    descriptions.push_back(*std::move(description));
    trained_.push_back(parameter);
  }
  if (absl::Status fits = CheckDevice(communicator_, device_); !fits.ok()) return fits;
  for (const auto& [name, parameter] : parameters_) {
    if (parameter.requires_grad()) continue;
    if (absl::Status fits = CheckWritable(absl::StrCat("parameter ", name), parameter, device_); !fits.ok())
      return fits;
  }
  SetBuffers(std::exchange(model_.buffers, {}));
  buffers_changed_ = false;  // Broadcast, which follows, compares
  if (!buffers_fit_.ok()) return buffers_fit_;
  return descriptions;
}

inline void Replicas::SetBuffers(const std::vector<NamedTensor>& buffers) {
  if (buffer_mode_ == Buffers::kLeave) return;
  std::unordered_set<torch::TensorImpl*> seen;
  for (const NamedTensor& parameter : parameters_) seen.insert(parameter.tensor.unsafeGetTensorImpl());
  buffers_.clear();
  buffers_fit_ = absl::OkStatus();
  AgreementFields words;
  for (const auto& [name, buffer] : buffers) {
    if (!buffer.defined() || !seen.insert(buffer.unsafeGetTensorImpl()).second) continue;
    buffers_.push_back({name, buffer});
    const std::string& field = words.emplace_back(absl::StrCat("buffer ", name), CommonOf(buffer)).first;
    buffers_fit_.Update(CheckWritable(field, buffer, device_));
  }
  if (words == buffers_in_words_) return;
  const auto differs = std::mismatch(words.begin(), words.end(), buffers_in_words_.begin(), buffers_in_words_.end());
  changed_buffer_ = differs.first != words.end() ? differs.first->first : differs.second->first;
  buffers_in_words_ = std::move(words);
  buffers_changed_ = true;
}

inline std::vector<NamedTensor> Replicas::Replicated() const {
  std::vector<NamedTensor> all = parameters_;
  all.insert(all.end(), buffers_.begin(), buffers_.end());
  return all;
}

inline Replicas::~Replicas() {
  gradients_.reset();
  // Every rank has begun an exchange of weights for a forward that does not come: Restart ends it. After an error the
  // exchange is given up.
  if (synchronizer_ == nullptr || !synchronizer_->exchanges_weights()) return;
  if (std::uncaught_exceptions() == exceptions_) (void)synchronizer_->Restart();
}

inline void Replicas::Broadcast() {
  AgreementFields common = frozen_;
  common.insert(common.end(), buffers_in_words_.begin(), buffers_in_words_.end());
  absl::Status mistake = CheckPlaces();
  mistake.Update(buffers_fit_);
  place_->ThrowIfError(synchronizer_->Agree("Broadcast", common, mistake));
  FollowStream(*synchronizer_, device_);
  // First the strategy forgets the old weights: when the broadcast has ended, no rank sends what it learnt of them.
  place_->ThrowIfError(synchronizer_->Restart());
  is_half_broadcast_ = true;
  TensorMemory state(Replicated());
  place_->ThrowIfError(synchronizer_->BroadcastState(state.memory()));
  state.WriteBack();
  is_half_broadcast_ = false;
  for (const NamedTensor& written : Replicated()) CountWrite(written.tensor);
  BeginForward();
}

inline void Replicas::BroadcastOptimizerState(std::string& state) {
  std::int64_t size = static_cast<std::int64_t>(state.size());
  place_->ThrowIfError(synchronizer_->BroadcastState({{.data = &size, .bytes = sizeof(size), .name = "size"}}));
  state.resize(static_cast<std::size_t>(size));
  place_->ThrowIfError(synchronizer_->BroadcastState({{.data = state.data(), .bytes = size, .name = "optimizer"}}));
}

inline void Replicas::BeginForward() {
  FollowStream(*synchronizer_, device_);
  place_->ThrowIfError(synchronizer_->BeginForward());
  if (weights_.has_value()) weights_->Remember();
}

// Checks that weights which are exchanged still lie where the synchronizer was told.
inline absl::Status Replicas::CheckPlaces() const {
  if (absl::Status model = model_.check(); !model.ok() || !weights_.has_value()) return model;
  const int moved = weights_->FindMoved();
  if (moved == WeightsWatch::kNone) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("parameter ", synchronizer_->parameters()[moved].name,
                                                 " was moved to other memory ", model_.advice_when_moved));
}

// Checks, too, that weights which are exchanged were written by nobody else since the last update.
inline absl::Status Replicas::CheckWeights() const {
  if (absl::Status places = CheckPlaces(); !places.ok()) return places;
  if (!weights_.has_value() || updating_) return absl::OkStatus();
  return ErrorOfWriting(weights_->FindWritten());
}

inline absl::Status Replicas::MayBeginBackward() {
  if (absl::Status weights = CheckWeights(); !weights.ok()) return weights;
  if (!weights_.has_value() || updating_) return absl::OkStatus();
  return ErrorOfWriting(weights_->FindWrittenAgain());
}

// The error that somebody else has written `parameter`; OK where that is WeightsWatch::kNone.
inline absl::Status Replicas::ErrorOfWriting(int parameter) const {
  if (parameter == WeightsWatch::kNone) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("parameter ", synchronizer_->parameters()[parameter].name,
                                                 ": weights were changed outside of ", model_.advice_when_written));
}

// Tells torch that weights which are exchanged were perhaps written, as it counts each change in place: backward()
// through older values is an error, whether or not this step has exchanged weights. Outside of an update these are the
// weights to go on from: where the call fails later on, its writes must not pass for those of somebody else.
inline void Replicas::CountWrites() {
  if (!weights_.has_value()) return;
  for (const torch::Tensor& parameter : trained_) CountWrite(parameter);
  if (!updating_) weights_->Remember();
}

inline std::int64_t Replicas::UsedBackwards() const {
  std::int64_t used = 0;
  for (const std::uintptr_t optimizer : {std::uintptr_t{0}, optimizer_}) {
    if (const auto found = used_by_.find(optimizer); found != used_by_.end()) used = std::max(used, found->second);
  }
  return used;
}

inline void Replicas::BeginUpdate(bool uses_gradients, std::uintptr_t optimizer) {
  if (updating_) CancelUpdate();
  if (!update_failed_) place_->ThrowIfError(gradients_->CheckNotAbandoned());
  optimizer_ = optimizer;
  if (uses_gradients) place_->ThrowIfError(gradients_->CheckExchanged(UsedBackwards()));
  place_->ThrowIfError(CheckWeights());
  // The answer concerns this step, so steps_together() is asked before the step is counted.
  steps_together_ = synchronizer_->steps_together();
  FollowStream(*synchronizer_, device_);
  place_->ThrowIfError(synchronizer_->BeforeStep());
  updating_ = update_failed_ = true;
  CountWrites();
}

inline void Replicas::CancelUpdate() {
  updating_ = false;
  // Weights that were moved are an error of the next call.
  if (weights_.has_value() && weights_->FindMoved() == WeightsWatch::kNone) weights_->Remember();
}

inline void Replicas::EndUpdate() {
  updating_ = update_failed_ = false;
  if (weights_.has_value()) {
    // The strategy reads and writes the memory that it was told of, which an update that moves weights has given back.
    place_->ThrowIfError(CheckPlaces());
    weights_->Remember();
  }
  place_->ThrowIfError(gradients_->CheckExchanged(UsedBackwards()));
  used_by_[optimizer_] = gradients_->exchanged_backwards();
  FollowStream(*synchronizer_, device_);
  place_->ThrowIfError(synchronizer_->AfterStep());
  CountWrites();
  if (steps_together_) SynchronizeBuffers();
  BeginForward();
}

inline void Replicas::Flush() {
  place_->ThrowIfError(CheckPlaces());
  FollowStream(*synchronizer_, device_);
  place_->ThrowIfError(synchronizer_->Flush());
  CountWrites();
  SynchronizeBuffers();
  BeginForward();
}

inline void Replicas::LoadState(const std::vector<std::string>& states) {
  place_->ThrowIfError(synchronizer_->Agree("LoadState", {}, CheckPlaces()));
  FollowStream(*synchronizer_, device_);
  ThrowIfError(synchronizer_->LoadState(states));
  is_half_broadcast_ = false;  // the weights are those of the checkpoint
  CountWrites();
  BeginForward();
}

// Returns call(), whose time counts as a wait for other ranks.
template <typename Call>
auto Replicas::Timed(const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = call();
  waited_ += absl::FromChrono(std::chrono::steady_clock::now() - begin);
  return result;
}

inline void Replicas::SynchronizeBuffers() {
  equal_after_ = gradients_->exchanged_backwards();
  const std::string changed = std::exchange(buffers_changed_, false) ? changed_buffer_ : "";
  absl::Status status = Timed([&] {
    if (changed.empty()) return absl::OkStatus();
    return synchronizer_->Agree("buffers", buffers_in_words_, buffers_fit_);
  });
  if (status.ok()) {
    const CallOptions call = synchronizer_->OwnCall({.schedule = &kSelectorsChoice, .caller_drives = true});
    status = Timed([&] { return nn::SynchronizeBuffers(communicator_, call, buffer_mode_, buffers_); });
  }
  // Where the other ranks have changed no buffer, they make another call than this rank.
  if (!changed.empty() && !status.ok()) {
    status =
        absl::Status(status.code(), absl::StrCat(status.message(), " (", changed, " of rank ", communicator_.rank(),
                                                 " has come, gone or changed its type or shape in this step, as it "
                                                 "must on all ranks)"));
  }
  place_->ThrowIfError(status);
}

inline void Replicas::AgreeOnMistake(const std::string& call, const std::string& mistake) {
  ThrowIfError(
      synchronizer_->Agree(call, {}, mistake.empty() ? absl::OkStatus() : absl::InvalidArgumentError(mistake)));
}

inline bool Replicas::OnAnyRank(bool mine) {
  std::int32_t flag = mine ? 1 : 0;
  const CallOptions call = synchronizer_->OwnCall({.schedule = &kSelectorsChoice, .caller_drives = true});
  place_->ThrowIfError(
      Timed([&] { return communicator_.AllReduce(&flag, &flag, 1, DType::kI32, ReduceOp::kMax, call).Wait(); }));
  return flag != 0;
}

inline SyncStatistics Replicas::TakeStatistics() {
  SyncStatistics statistics = synchronizer_->TakeStatistics();
  const absl::Duration waited = std::exchange(waited_, absl::ZeroDuration());
  statistics.exposed += waited;
  statistics.communication += waited;
  return statistics;
}

inline void Replicas::CheckReplicas() {
  place_->ThrowIfError(synchronizer_->Agree("CheckReplicas", {}, model_.check()));
  FollowStream(*synchronizer_, device_);
  place_->ThrowIfError(synchronizer_->CheckState(TensorMemory(Replicated()).memory()));
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_REPLICAS_H_
