// The optimizer of the strategy `qadam`: Adam whose ranks exchange momentum in 8 bits per element, once its variance
// has settled. After 1-bit Adam (Tang et al., 2021, https://arxiv.org/abs/2102.02888) and Bagua's QAdam.
//
// Warm-up, steps t = 1 … w. Gradients are averaged exactly (to ḡ), and every rank does what Adam does:
//
//   g ← ḡ + weight_decay · x
//   m ← beta1 · m + (1 - beta1) · g
//   v ← beta2 · v + (1 - beta2) · g²
//   x ← x - lr/(1 - beta1^t) · m / (√v / √(1 - beta2^t) + eps)
//
// Afterwards v is frozen, with the bias correction it had: v̂ = v / (1 - beta2^w). Every rank r adds its own gradient to
// the momentum, and the ranks average that, compressed as the strategy says:
//
//   m_r ← beta1 · m + (1 - beta1) · (g_r + weight_decay · x)
//   m ← average of all m_r
//   x ← x - lr/(1 - beta1^t) · m / (√v̂ + eps)
//
// t counts the steps of each parameter that have changed the parameter, as torch's Adam counts, and w is its t when the
// warm-up ends: a parameter that is left untouched in a step (QAdam::Step) does not count that step.
//
// m and v are f32; every operation is rounded to f32 by itself, in the order written, and 16-bit weights once more. The
// momentum that travels has the type of the gradients: with 16-bit weights m_r and the average, which becomes m, are
// rounded to 16 bits in every step after the warm-up, so with bf16 a share (1 - beta1) · (g - m) below 1/512 of m is
// lost. All ranks end every step with equal bits.
//
// When the warm-up ends. freeze=steps: w = warmup_steps. freeze=variance: as soon as, from warmup_steps on, the norm
// ‖v‖₁ (each v with its bias correction) has changed by less than a factor 0.96 within 1/(1 - beta2) steps, the largest
// beta2 of all groups; the norm is computed once in 1/(1 - beta2) steps. Ratio, period and norm are those of 1-bit
// Adam. The ranks compare the norm, so that a rank whose norm differs is an error that names it. In both cases the
// warm-up goes on for as long as all gradients have been zero.
//
// Floor of the variance. When v̂ freezes, every element of it is raised to at least 1e-4 times the mean of its
// parameter (the mean of all parameters, if that is zero). An element that had no gradient in the warm-up, a dead unit
// or a rare word, has v̂ = 0, and its first gradient would move it by lr · m / eps. In Adam v would grow with that
// gradient; frozen, it cannot. With the floor a gradient as large as those around it moves the element by at most 100
// lr. 8 bits cannot tell a value below 1/100 of the root mean square, the root of the floor, from zero anyway.
#ifndef TUTTI_QADAM_H_
#define TUTTI_QADAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tutti/buffer.h"
#include "tutti/synchronizer.h"

namespace tutti {

class BucketMemory;
struct SavedMoments;

// The rounds of the strategy: see Algorithm::rounds.
inline constexpr int kQAdamWarmUp = 0;
inline constexpr int kQAdamCompressed = 1;

// In a step, every rank makes the calls of Synchronizer up to FinishBackward, and then calls Step in place of an
// optimizer. After the warm-up GradientView(i) holds momentum once FinishBackward has returned: what is done to
// gradients between the two calls (clipping) is then done to momentum, and gradients must be zeroed before the next
// backward adds to them. All ranks may leave out the call of Step together: weights, m, v and t then are as they were
// before the backward, and residuals of error feedback are those that the exchange of this backward has left.
//
// Not thread-safe, but for ReplaceGradient.
class QAdam final : public MomentumSource {
 public:
  struct Group {
    double lr = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0;
  };

  // The weights of one parameter, as many as it has elements, without gaps, in the memory of the synchronizer
  // (SynchronizerOptions::memory). Weights of two parameters have no byte in common.
  struct Weights {
    void* data = nullptr;
    int group = 0;
  };

  // Makes the optimizer of all parameters of `synchronizer`, in their order, and the momentum source of `synchronizer`.
  // `synchronizer` and the weights must outlive the result. Collective: InvalidArgument names the field that is wrong,
  // or the rank and field that differ; FailedPrecondition when the strategy is not qadam or the synchronizer has a
  // momentum source; ResourceExhausted, on all ranks, when one has no memory for m and v.
  static absl::StatusOr<std::unique_ptr<QAdam>> Create(Synchronizer& synchronizer, std::vector<Weights> weights,
                                                       std::vector<Group> groups);
  ~QAdam() override;
  QAdam(const QAdam&) = delete;
  QAdam& operator=(const QAdam&) = delete;

  // Changes the weights by the result of the last backward. FailedPrecondition when no backward that synchronizes has
  // ended since the last step, or another one was begun after it and has not ended (it may have been given up): nothing
  // is changed then. Allocates nothing. With freeze=variance, Step is collective in the steps that look at the norm.
  // `untouched`, ascending, lists parameters that keep their weights, m and v, as torch keeps those without a gradient;
  // equal on all ranks (Synchronizer::used tells which parameters no rank has used). InvalidArgument where it is not
  // ascending or names no parameter: nothing is changed then, and Step may be called again.
  absl::Status Step(absl::Span<const int> untouched = {});

  const std::vector<Group>& groups() const { return groups_; }
  // Replaces the options of group `g`, between a step and the next backward; equal on all ranks. InvalidArgument names
  // the field.
  absl::Status SetGroup(int g, const Group& group);
  // Tells that the weights of parameter `i`, at least 0 and less than their number, have moved to `data`. Between steps
  // only.
  void SetWeights(int i, void* data) { weights_[i].data = data; }

  std::int64_t step() const { return step_; }  // steps taken, those before the state was saved included
  bool frozen() const { return frozen_; }      // the warm-up is over

  // The state m, v, every t and the phase, bit for bit; equal on all ranks. Between steps only. Empty, which LoadState
  // refuses, when m and v cannot be read from a GPU.
  std::string SaveState() const;
  // Loads what SaveState returned, with any number of ranks; all ranks must load it. m, v and t are found by the names
  // of parameters; where the state has none of the names, by order, if all sizes agree. In the warm-up m, v and t of a
  // parameter that the state has not begin with zeros; later the parameter would have no variance. Those that the state
  // has besides are in what SaveState returns, for when they are trained again. InvalidArgument names what does not
  // fit, a state of another model included; nothing is changed then.
  absl::Status LoadState(const std::string& state);
  // The names of the parameters that the state loaded last had not, whose m, v and t then began with zeros.
  const std::vector<std::string>& begun_anew() const { return begun_anew_; }

  // MomentumSource, whose functions the synchronizer calls.
  absl::StatusOr<int> BeginBackward() override;
  void ReplaceGradient(int i, void* stream) override;

 private:
  // Where a parameter lies in m_ and v_.
  struct Range {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::size_t bytes() const { return static_cast<std::size_t>(count) * sizeof(float); }
  };
  // m, v and t of a parameter that was in the state loaded last, and is not trained now.
  struct Absent {
    std::string name;
    std::int64_t changes = 0;
    bool frozen = false;
    std::string m;
    std::string v;
  };

  QAdam(Synchronizer& synchronizer, std::vector<Weights> weights, std::vector<Group> groups);
  absl::Status Allocate();
  BucketMemory& memory() const;
  // `moments`, m_ or v_, where the host can read and change them: where they lie, or in `copy`.
  absl::StatusOr<absl::Span<float>> OnHost(float* moments, std::vector<float>& copy) const;
  void UpdateWeights(int i);
  absl::Status EndStepOfWarmUp();
  // 1 - beta2^t of parameter `i`, by which its v is divided; 1 before the first step that changes the parameter.
  double VarianceCorrection(std::size_t i) const;
  absl::StatusOr<bool> VarianceSettled();
  std::int64_t Period() const;
  absl::StatusOr<double> VarianceNorm() const;
  absl::Status Freeze();
  // Whether `moments`, null where a state of the phase `frozen` has none, can be those of parameter `i`.
  absl::Status CheckFits(std::size_t i, const SavedMoments* moments, bool frozen) const;
  absl::Status LoadMoments(std::size_t i, const SavedMoments* moments);

  Synchronizer& synchronizer_;
  std::vector<Weights> weights_;
  std::vector<Group> groups_;
  std::vector<Range> ranges_;
  std::vector<std::shared_ptr<void>> gradients_;
  std::int64_t warmup_steps_ = 0;
  bool freezes_by_variance_ = false;

  // m and v of all parameters: in on_host_, or in on_device_.
  std::int64_t elements_ = 0;
  std::unique_ptr<float[]> on_host_;
  Buffer on_device_;
  float* m_ = nullptr;
  float* v_ = nullptr;
  std::int64_t step_ = 0;
  std::vector<std::int64_t> changes_;  // of each parameter: t, the steps that have changed the parameter
  bool frozen_ = false;
  double last_norm_ = 0;  // norm of v, when VarianceSettled last computed it
  std::vector<Absent> absent_;
  std::vector<std::string> begun_anew_;

  // The step counter of the synchronizer after the end of the last backward that synchronizes and has begun since the
  // last step; it stays behind where that backward has not ended, or was given up.
  static constexpr std::int64_t kNoStep = -1;
  std::int64_t step_of_end_ = kNoStep;
};

}  // namespace tutti

#endif  // TUTTI_QADAM_H_
