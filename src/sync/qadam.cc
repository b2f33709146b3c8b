#include "tutti/qadam.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/exactly.h"
#include "base/floating_mode.h"
#include "kernels/adam.h"
#include "sync/agreement.h"
#include "sync/bucket_memory.h"
#include "sync/overlap.h"
#include "sync/qadam_format.h"
#include "sync/synchronizer_impl.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

constexpr double kSettledRatio = 0.96;   // ratio of the norms of v, a period apart, from which v counts as settled
constexpr double kVarianceFloor = 1e-4;  // the floor of the variance, as a multiple of the mean of v

// The names of all algorithms that exchange momentum.
std::string NamesOfMomentum() {
  std::vector<absl::string_view> names;
  for (const Algorithm* algorithm : AllAlgorithms()) {
    if (algorithm->exchanges == Exchanges::kMomentum) names.push_back(algorithm->name);
  }
  return absl::StrJoin(names, " or ");
}

absl::Status CheckGroup(int g, const QAdam::Group& group) {
  const auto wrong = [&](absl::string_view field, double value, absl::string_view valid) {
    return absl::InvalidArgumentError(absl::StrCat("groups[", g, "].", field, " is ", value, ", must be ", valid));
  };
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  const auto is_positive_or_zero = [](double value) { return value >= 0 && std::isfinite(value); };
  if (!is_positive_or_zero(group.lr)) return wrong("lr", group.lr, "a number from 0 on");
  if (!is_beta(group.beta1)) return wrong("beta1", group.beta1, "in [0, 1)");
  if (!is_beta(group.beta2)) return wrong("beta2", group.beta2, "in [0, 1)");
  if (!is_positive_or_zero(group.eps)) return wrong("eps", group.eps, "a number from 0 on");
  if (!is_positive_or_zero(group.weight_decay)) {
    return wrong("weight_decay", group.weight_decay, "a number from 0 on");
  }
  return absl::OkStatus();
}

absl::Status CheckArguments(const std::vector<Parameter>& parameters, const std::vector<QAdam::Weights>& weights,
                            const std::vector<QAdam::Group>& groups) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (absl::Status valid = CheckGroup(static_cast<int>(g), groups[g]); !valid.ok()) return valid;
  }
  if (weights.size() != parameters.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "weights has ", weights.size(), " entries, must have one for each of ", parameters.size(), " parameters"));
  }
  std::vector<StateMemory> ranges;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].group < 0 || weights[i].group >= static_cast<int>(groups.size())) {
      return absl::InvalidArgumentError(absl::StrCat("weights[", i, "].group of ", parameters[i].name, " is ",
                                                     weights[i].group, ", must be less than the number of groups, ",
                                                     groups.size()));
    }
    if (weights[i].data == nullptr && parameters[i].count > 0) {
      return absl::InvalidArgumentError(absl::StrCat("weights[", i, "].data of ", parameters[i].name, " is null"));
    }
    ranges.push_back({weights[i].data, parameters[i].count * SizeOf(parameters[i].dtype), parameters[i].name});
  }
  return CheckDisjoint(std::move(ranges));
}

// What ranks must agree on; parameters and strategy are agreed on when the synchronizer is created.
AgreementFields FieldsOf(const std::vector<QAdam::Weights>& weights, const std::vector<QAdam::Group>& groups) {
  AgreementFields fields = {{"groups", absl::StrCat(groups.size())}, {"weights", absl::StrCat(weights.size())}};
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const QAdam::Group& group = groups[g];
    for (const auto& [name, value] :
         {std::pair("lr", group.lr), std::pair("beta1", group.beta1), std::pair("beta2", group.beta2),
          std::pair("eps", group.eps), std::pair("weight_decay", group.weight_decay)}) {
      fields.emplace_back(absl::StrCat("groups[", g, "].", name), Exactly(value));
    }
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    fields.emplace_back(absl::StrCat("weights[", i, "].group"), absl::StrCat(weights[i].group));
  }
  return fields;
}

kernels::AdamFactors FactorsOf(const QAdam::Group& group, std::int64_t step) {
  const auto t = static_cast<double>(step);
  return {.beta1 = static_cast<float>(group.beta1),
          .from_gradient1 = static_cast<float>(1 - group.beta1),
          .beta2 = static_cast<float>(group.beta2),
          .from_gradient2 = static_cast<float>(1 - group.beta2),
          .weight_decay = static_cast<float>(group.weight_decay),
          .step_size = static_cast<float>(group.lr / (1 - std::pow(group.beta1, t))),
          .correction = static_cast<float>(std::sqrt(1 - std::pow(group.beta2, t))),
          .epsilon = static_cast<float>(group.eps)};
}

// What a state has of the parameters of an optimizer.
struct Found {
  std::vector<const SavedMoments*> own;     // of each parameter of the optimizer; null: the state has none
  std::vector<const SavedMoments*> others;  // of parameters that the optimizer has not
};

// A name that occurs several times stands for the parameters of this name in their order.
Found FindByName(const SavedQAdam& saved, const std::vector<Parameter>& parameters) {
  std::multimap<absl::string_view, std::size_t> sought;
  for (std::size_t i = 0; i < parameters.size(); ++i) sought.emplace(parameters[i].name, i);
  Found found;
  found.own.resize(parameters.size());
  for (const SavedMoments& moments : saved.parameters) {
    if (const auto next = sought.lower_bound(moments.name); next != sought.end() && next->first == moments.name) {
      found.own[next->second] = &moments;
      sought.erase(next);
    } else {
      found.others.push_back(&moments);
    }
  }
  return found;
}

// Whether `saved` has parameters as many and as large as `parameters`, in this order, of which the optimizer that was
// saved had all.
bool HasSameSizes(const SavedQAdam& saved, const std::vector<Parameter>& parameters) {
  return std::equal(saved.parameters.begin(), saved.parameters.end(), parameters.begin(), parameters.end(),
                    [](const SavedMoments& moments, const Parameter& parameter) {
                      const auto count = static_cast<std::int64_t>(moments.m.size() / sizeof(float));
                      return moments.trained && count == parameter.count;
                    });
}

// Finds the parameters by name or, where the state has no name of the model, by order: a wrapper puts its own name
// before those of all parameters, as torch.compile does. InvalidArgument: the state is of another model.
absl::StatusOr<Found> Find(const SavedQAdam& saved, const std::vector<Parameter>& parameters) {
  Found found = FindByName(saved, parameters);
  if (parameters.empty() || found.others.empty() || found.others.size() < saved.parameters.size()) return found;
  if (HasSameSizes(saved, parameters)) {
    found.own.swap(found.others);
    found.others.clear();
    return found;
  }
  return absl::InvalidArgumentError(absl::StrCat("no parameter that is trained here (", parameters[0].name,
                                                 ", …) is in the state, which has ", found.others[0]->name,
                                                 ", …, nor are they as many and as large: load a state of this model, "
                                                 "or begin with another QAdam"));
}

}  // namespace

QAdam::QAdam(Synchronizer& synchronizer, std::vector<Weights> weights, std::vector<Group> groups)
    : synchronizer_(synchronizer), weights_(std::move(weights)), groups_(std::move(groups)) {
  for (const Parameter& parameter : synchronizer_.parameters()) {
    ranges_.push_back({elements_, parameter.count});
    gradients_.push_back(synchronizer_.GradientView(static_cast<int>(gradients_.size())));
    elements_ += parameter.count;
  }
  changes_.resize(ranges_.size());
}

BucketMemory& QAdam::memory() const { return *synchronizer_.impl_->context.memory; }

absl::Status QAdam::Allocate() {
  const std::int64_t bytes = 2 * elements_ * static_cast<std::int64_t>(sizeof(float));
  if (memory().on_device()) {
    absl::StatusOr<Buffer> both = memory().AllocateZeroed(bytes);
    if (!both.ok()) return both.status();
    on_device_ = *std::move(both);
    m_ = on_device_.as<float>().data();
  } else {
    on_host_.reset(new (std::nothrow) float[2 * static_cast<std::size_t>(elements_)]());
    if (on_host_ == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for m and v of QAdam, ", bytes, " bytes"));
    }
    m_ = on_host_.get();
  }
  v_ = m_ + elements_;
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<float>> QAdam::OnHost(float* moments, std::vector<float>& copy) const {
  if (!memory().on_device()) return absl::Span<float>(moments, static_cast<std::size_t>(elements_));
  copy.resize(static_cast<std::size_t>(elements_));
  absl::Status read = memory().Transfer(copy.data(), moments, elements_ * static_cast<std::int64_t>(sizeof(float)));
  if (!read.ok()) return read;
  return absl::MakeSpan(copy);
}

absl::StatusOr<std::unique_ptr<QAdam>> QAdam::Create(Synchronizer& synchronizer, std::vector<Weights> weights,
                                                     std::vector<Group> groups) {
  const absl::StatusOr<Strategy> strategy = ParseStrategy(synchronizer.strategy());
  if (!strategy.ok()) return strategy.status();
  if (strategy->algorithm->exchanges != Exchanges::kMomentum) {
    return absl::FailedPreconditionError(absl::StrCat("QAdam needs a synchronizer with the strategy ",
                                                      NamesOfMomentum(), ", but the synchronizer has ",
                                                      synchronizer.strategy()));
  }
  for (const absl::string_view option : {"warmup_steps", "freeze"}) {
    if (strategy->has(option)) continue;
    return absl::FailedPreconditionError(absl::StrCat("QAdam needs a strategy with the option ", option, ", which ",
                                                      strategy->algorithm->name, " has not"));
  }
  std::int64_t warmup_steps = 0;
  if (const absl::string_view given = strategy->option("warmup_steps"); !absl::SimpleAtoi(given, &warmup_steps)) {
    return absl::FailedPreconditionError(absl::StrCat("QAdam needs the option warmup_steps of ",
                                                      strategy->algorithm->name, " as a whole number, but it is '",
                                                      given, "'"));
  }
  absl::Status mistake;
  if (synchronizer.momentum_source() != nullptr) {
    mistake = absl::FailedPreconditionError("the synchronizer has a QAdam already");
  }
  mistake.Update(CheckArguments(synchronizer.parameters(), weights, groups));
  const AgreementFields fields = FieldsOf(weights, groups);
  std::unique_ptr<QAdam> optimizer(new QAdam(synchronizer, std::move(weights), std::move(groups)));
  for (const Weights& of_parameter : optimizer->weights_) {
    mistake.Update(optimizer->memory().Check(of_parameter.data));
  }
  if (absl::Status agreed = synchronizer.Agree("QAdam::Create", fields, mistake); !agreed.ok()) return agreed;
  const SyncContext& context = synchronizer.impl_->context;
  absl::Status allocated = AgreeOnMemory(context.communicator, context.caller, optimizer->Allocate());
  if (!allocated.ok()) return allocated;
  optimizer->warmup_steps_ = warmup_steps;
  optimizer->freezes_by_variance_ = strategy->option("freeze") == "variance";
  synchronizer.set_momentum_source(optimizer.get());
  return optimizer;
}

QAdam::~QAdam() {
  if (synchronizer_.momentum_source() == this) synchronizer_.set_momentum_source(nullptr);
}

absl::Status QAdam::SetGroup(int g, const Group& group) {
  if (g < 0 || g >= static_cast<int>(groups_.size())) {
    return absl::InvalidArgumentError(absl::StrCat("group ", g, " must be less than their number, ", groups_.size()));
  }
  if (absl::Status valid = CheckGroup(g, group); !valid.ok()) return valid;
  groups_[g] = group;
  return absl::OkStatus();
}

absl::StatusOr<int> QAdam::BeginBackward() {
  step_of_end_ = synchronizer_.step() + 1;
  return frozen_ ? kQAdamCompressed : kQAdamWarmUp;
}

void QAdam::ReplaceGradient(int i, void* stream) {
  if (!frozen_) return;
  memory().BlendIntoMomentum(stream, synchronizer_.parameters()[i].dtype, gradients_[i].get(), weights_[i].data,
                             m_ + ranges_[i].begin, ranges_[i].count,
                             FactorsOf(groups_[weights_[i].group], changes_[i] + 1));
}

absl::Status QAdam::Step(absl::Span<const int> untouched) {
  const int count = static_cast<int>(weights_.size());
  for (std::size_t k = 0; k < untouched.size(); ++k) {
    const int least = k == 0 ? 0 : untouched[k - 1] + 1;
    if (untouched[k] >= least && untouched[k] < count) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", synchronizer_.impl_->context.communicator.rank(), ": QAdam::Step: untouched[", k, "] is ",
                     untouched[k], ", must be at least ", least, " and less than the number of parameters, ", count));
  }
  if (absl::Status exchanged = synchronizer_.BeforeStep(); !exchanged.ok()) return exchanged;
  if (synchronizer_.step() != step_of_end_) {
    return absl::FailedPreconditionError(
        "QAdam::Step was called, but no backward that synchronizes has ended since the last step, or a later one has "
        "not ended");
  }
  step_of_end_ = kNoStep;
  ++step_;
  for (int i = 0; i < count; ++i) {
    if (!std::binary_search(untouched.begin(), untouched.end(), i)) UpdateWeights(i);
  }
  return frozen_ ? absl::OkStatus() : EndStepOfWarmUp();
}

void QAdam::UpdateWeights(int i) {
  const DType dtype = synchronizer_.parameters()[i].dtype;
  const kernels::AdamFactors factors = FactorsOf(groups_[weights_[i].group], ++changes_[i]);
  float* const m = m_ + ranges_[i].begin;
  float* const v = v_ + ranges_[i].begin;
  if (frozen_) {
    memory().FrozenAdamStep(dtype, weights_[i].data, gradients_[i].get(), m, v, ranges_[i].count, factors);
  } else {
    memory().AdamStep(dtype, weights_[i].data, gradients_[i].get(), m, v, ranges_[i].count, factors);
  }
}

absl::Status QAdam::EndStepOfWarmUp() {
  if (freezes_by_variance_) {
    const absl::StatusOr<bool> settled = VarianceSettled();
    if (!settled.ok()) return settled.status();
    return *settled ? Freeze() : absl::OkStatus();
  }
  return step_ >= warmup_steps_ ? Freeze() : absl::OkStatus();
}

std::int64_t QAdam::Period() const {
  double beta2 = 0;
  for (const Group& group : groups_) beta2 = std::max(beta2, group.beta2);
  return std::llround(1 / (1 - beta2));
}

double QAdam::VarianceCorrection(std::size_t i) const {
  if (changes_[i] == 0) return 1;
  return 1 - std::pow(groups_[weights_[i].group].beta2, static_cast<double>(changes_[i]));
}

absl::StatusOr<double> QAdam::VarianceNorm() const {
  const DefaultFloatingMode mode;  // all ranks compute the same bits
  std::vector<float> copy;
  const absl::StatusOr<absl::Span<float>> v = OnHost(v_, copy);
  if (!v.ok()) return v.status();
  double norm = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    double sum = 0;
    for (std::int64_t k = 0; k < ranges_[i].count; ++k) sum += (*v)[static_cast<std::size_t>(ranges_[i].begin + k)];
    norm += sum / VarianceCorrection(i);
  }
  return norm;
}

absl::StatusOr<bool> QAdam::VarianceSettled() {
  if (step_ % Period() != 0) return false;
  const absl::StatusOr<double> computed = VarianceNorm();
  if (!computed.ok()) return computed.status();
  const double norm = *computed;
  const double last = std::exchange(last_norm_, norm);
  if (step_ < warmup_steps_) return false;
  // All ranks have the same variance and so decide alike; a rank that differed would run another plan than its peers,
  // which would wait for it.
  absl::Status agreed = synchronizer_.Agree(
      "QAdam::Step", {{"steps of the optimizer", absl::StrCat(step_)}, {"norm of the variance", Exactly(norm)}});
  if (!agreed.ok()) return agreed;
  return norm >= kSettledRatio * last && last >= kSettledRatio * norm;
}

absl::Status QAdam::Freeze() {
  const DefaultFloatingMode mode;
  const absl::StatusOr<double> norm = VarianceNorm();
  if (!norm.ok() || *norm == 0) return norm.status();
  const double mean_of_all = *norm / static_cast<double>(elements_);
  std::vector<float> copy;
  const absl::StatusOr<absl::Span<float>> variance = OnHost(v_, copy);
  if (!variance.ok()) return variance.status();
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const double correction = VarianceCorrection(i);
    const auto begin = variance->begin() + ranges_[i].begin;
    const auto end = begin + ranges_[i].count;
    double sum = 0;
    for (auto v = begin; v != end; ++v) {
      *v /= static_cast<float>(correction);
      sum += *v;
    }
    const double mean = sum == 0 ? mean_of_all : sum / static_cast<double>(ranges_[i].count);
    if (!std::isfinite(mean)) continue;
    const auto floor = static_cast<float>(kVarianceFloor * mean);
    std::for_each(begin, end, [floor](float& v) { v = v < floor ? floor : v; });
  }
  if (memory().on_device()) {
    const std::int64_t bytes = elements_ * static_cast<std::int64_t>(sizeof(float));
    if (absl::Status written = memory().Transfer(v_, variance->data(), bytes); !written.ok()) return written;
  }
  frozen_ = true;
  return absl::OkStatus();
}

std::string QAdam::SaveState() const {
  std::vector<float> copy_of_m;
  std::vector<float> copy_of_v;
  const absl::StatusOr<absl::Span<float>> m = OnHost(m_, copy_of_m);
  const absl::StatusOr<absl::Span<float>> v = OnHost(v_, copy_of_v);
  if (!m.ok() || !v.ok()) return "";
  SavedQAdam saved = {.step = step_, .frozen = frozen_, .last_norm = last_norm_, .parameters = {}};
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const auto bytes_of = [&](absl::Span<float> moments) {
      return absl::string_view(reinterpret_cast<const char*>(moments.data() + ranges_[i].begin), ranges_[i].bytes());
    };
    saved.parameters.push_back(
        {synchronizer_.parameters()[i].name, changes_[i], frozen_, /*trained=*/true, bytes_of(*m), bytes_of(*v)});
  }
  for (const Absent& one : absent_) {
    saved.parameters.push_back({one.name, one.changes, one.frozen, /*trained=*/false, one.m, one.v});
  }
  return Write(saved);
}

absl::Status QAdam::CheckFits(std::size_t i, const SavedMoments* moments, bool frozen) const {
  const std::string& name = synchronizer_.parameters()[i].name;
  if (frozen && (moments == nullptr || !moments->frozen)) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", name, " was not trained when the warm-up of the state ended, so that the state has ",
                     "no variance of it: freeze ", name, ", or begin with another QAdam, which has a warm-up"));
  }
  if (moments == nullptr || moments->m.size() == ranges_[i].bytes()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the state has ", moments->m.size() / sizeof(float), " elements of ",
                                                 name, ", expected ", ranges_[i].count));
}

absl::Status QAdam::LoadMoments(std::size_t i, const SavedMoments* moments) {
  changes_[i] = moments == nullptr ? 0 : moments->changes;
  const auto bytes = static_cast<std::int64_t>(ranges_[i].bytes());
  if (moments == nullptr) {
    for (float* const to : {m_, v_}) memory().Zero(to + ranges_[i].begin, bytes);
    return absl::OkStatus();
  }
  if (bytes == 0) return absl::OkStatus();
  for (const auto& [to, tensor] : {std::pair(m_, moments->m), std::pair(v_, moments->v)}) {
    absl::Status written = memory().Transfer(to + ranges_[i].begin, tensor.data(), bytes);
    if (!written.ok()) return written;
  }
  return absl::OkStatus();
}

absl::Status QAdam::LoadState(const std::string& state) {
  const absl::StatusOr<SavedQAdam> saved = ParseQAdam(state);
  if (!saved.ok()) return saved.status();
  const std::vector<Parameter>& parameters = synchronizer_.parameters();
  const absl::StatusOr<Found> found = Find(*saved, parameters);
  if (!found.ok()) return found.status();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (absl::Status fits = CheckFits(i, found->own[i], saved->frozen); !fits.ok()) return fits;
  }
  begun_anew_.clear();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (absl::Status loaded = LoadMoments(i, found->own[i]); !loaded.ok()) return loaded;
    if (found->own[i] == nullptr) begun_anew_.push_back(parameters[i].name);
  }
  absent_.clear();
  for (const SavedMoments* other : found->others) {
    absent_.push_back(
        {std::string(other->name), other->changes, other->frozen, std::string(other->m), std::string(other->v)});
  }
  step_ = saved->step;
  frozen_ = saved->frozen;
  last_norm_ = saved->last_norm;
  step_of_end_ = kNoStep;
  return absl::OkStatus();
}

}  // namespace tutti
