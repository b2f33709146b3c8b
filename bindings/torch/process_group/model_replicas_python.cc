#include "bindings/torch/process_group/model_replicas_python.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bindings/torch/process_group/model_replicas.h"
#include "bindings/torch/process_group/without_gil.h"
#include "tutti/torch/buffers.h"

namespace py = pybind11;

namespace tutti::dist {
namespace {

nn::Buffers BuffersNamed(const std::string& name) {
  if (name == "broadcast") return nn::Buffers::kBroadcast;
  if (name == "average") return nn::Buffers::kAverage;
  TORCH_CHECK_VALUE(name == "leave", "tutti: buffers=\"", name, "\": use \"broadcast\", \"average\" or \"leave\"");
  return nn::Buffers::kLeave;
}

std::shared_ptr<ModelReplicas> Create(ProcessGroupTutti& group, const ModelReplicas::NamedTensors& parameters,
                                      const ModelReplicas::NamedTensors& buffers, const std::string& strategy,
                                      const std::string& buffer_mode, bool allow_unused, std::int64_t bucket_bytes,
                                      std::optional<bool> autotune) {
  nn::ReplicasOptions options = {.strategy = strategy, .bucket_bytes = bucket_bytes};
  options.first_bucket_bytes = std::min(options.first_bucket_bytes, bucket_bytes);
  options.allow_unused = allow_unused;
  options.autotune = autotune;
  options.buffers = BuffersNamed(buffer_mode);
  // The lock is released here, not by a call_guard, which would also cover what pybind11 writes about the new object.
  const WithoutGil no_gil;
  return ModelReplicas::Create(group, parameters, buffers, options);
}

// The options of all groups of an optimizer of Python: lr, beta1, beta2, eps and weight_decay of each. Called in
// backward(), without the GIL.
nn::QAdamUpdate::Groups GroupsOf(py::function groups) {
  const auto held = std::shared_ptr<py::function>(new py::function(std::move(groups)), [](py::function* function) {
    const py::gil_scoped_acquire gil;
    delete function;
  });
  return [held]() -> absl::StatusOr<std::vector<QAdam::Group>> {
    const py::gil_scoped_acquire gil;
    std::vector<QAdam::Group> result;
    try {
      for (const auto& [lr, beta1, beta2, eps, weight_decay] : (*held)().cast<std::vector<std::array<double, 5>>>()) {
        result.push_back({.lr = lr, .beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = weight_decay});
      }
    } catch (const std::exception& error) {
      return absl::InvalidArgumentError(absl::StrCat("the options of QAdam: ", error.what()));
    }
    return result;
  };
}

void MakeQAdam(ModelReplicas& model, const std::vector<std::vector<at::Tensor>>& parameters, py::function groups) {
  nn::QAdamUpdate::Groups options = GroupsOf(std::move(groups));
  const WithoutGil no_gil;
  model.MakeQAdam(parameters, std::move(options));
}

// Calls the member of nn::Replicas, or of nn::Synchronizer or nn::QAdamUpdate below, without the GIL.
template <typename Result, typename... Arguments>
auto OfReplicas(Result (nn::Replicas::*member)(Arguments...)) {
  return [member](const ModelReplicas& model, std::decay_t<Arguments>... arguments) {
    const WithoutGil no_gil;
    return ((*model.replicas()).*member)(std::move(arguments)...);
  };
}

template <typename Result, typename... Arguments>
auto OfSynchronizer(Result (Synchronizer::*member)(Arguments...)) {
  return [member](const ModelReplicas& model, std::decay_t<Arguments>... arguments) {
    const WithoutGil no_gil;
    return (model.replicas()->synchronizer().*member)(std::move(arguments)...);
  };
}

template <typename SaveState>
py::bytes Saved(const SaveState& save_state) {
  std::string state;
  {
    const WithoutGil no_gil;
    state = save_state();
  }
  return py::bytes(state);
}

py::bytes BroadcastOptimizerState(const ModelReplicas& model, std::string state) {
  return Saved([&] {
    model.replicas()->BroadcastOptimizerState(state);
    return std::move(state);
  });
}

void SetBuffers(const ModelReplicas& model, const ModelReplicas::NamedTensors& buffers) {
  std::vector<nn::NamedTensor> named;
  for (const auto& [name, buffer] : buffers) named.push_back({name, buffer});
  model.replicas()->SetBuffers(named);
}

py::dict TakeStatistics(const ModelReplicas& model) {
  const SyncStatistics statistics = model.replicas()->TakeStatistics();
  py::dict result;
  result["steps"] = statistics.steps;
  result["wire_bytes"] = statistics.wire_bytes;
  result["payload_bytes"] = statistics.payload_bytes;
  result["exposed_seconds"] = absl::ToDoubleSeconds(statistics.exposed);
  result["communication_seconds"] = absl::ToDoubleSeconds(statistics.communication);
  result["engine_cpu_seconds"] = absl::ToDoubleSeconds(statistics.engine_cpu);
  result["engine_waiting_seconds"] = absl::ToDoubleSeconds(statistics.engine_waiting);
  return result;
}

py::dict DictOf(const TuningTrial& trial) {
  py::dict result;
  result["bucket_bytes"] = trial.tuning.bucket_bytes;
  result["first_bucket_bytes"] = trial.tuning.first_bucket_bytes;
  result["schedule"] = trial.tuning.schedule;
  result["hierarchical"] = trial.tuning.hierarchical;
  result["seconds"] = trial.seconds;
  return result;
}

py::dict TuningOf(const ModelReplicas& model) {
  const TuningReport report = model.replicas()->synchronizer().tuning();
  py::list trials;
  for (const TuningTrial& trial : report.trials) trials.append(DictOf(trial));
  py::dict result;
  result["state"] = std::string(Name(report.state));
  result["reason"] = report.reason;
  result["backwards"] = report.backwards;
  result["most_backwards"] = report.most_backwards;
  result["trials"] = trials;
  if (!report.trials.empty()) {
    result["start"] = DictOf(report.start);
    result["choice"] = DictOf(report.choice);
    result["gain"] = report.gain();
  }
  return result;
}

}  // namespace

void DefineModelReplicas(py::module_& module) {
  const py::call_guard<WithoutGil> no_gil;
  py::class_<ModelReplicas, std::shared_ptr<ModelReplicas>>(module, "ModelReplicas",
                                                            "Keeps the replicas of one model in step.")
      .def(py::init(&Create), py::arg("group"), py::arg("parameters"), py::arg("buffers"), py::arg("strategy"),
           py::arg("buffer_mode"), py::arg("allow_unused"), py::arg("bucket_bytes"), py::arg("autotune"))
      .def_property_readonly("strategy",
                             [](const ModelReplicas& model) { return model.replicas()->synchronizer().strategy(); })
      .def_property_readonly("step", [](const ModelReplicas& model) { return model.replicas()->synchronizer().step(); })
      .def_property_readonly(
          "exchanges_weights",
          [](const ModelReplicas& model) { return model.replicas()->synchronizer().exchanges_weights(); })
      .def("note_forward", &ModelReplicas::NoteForward)
      .def("begin_update", OfReplicas(&nn::Replicas::BeginUpdate), py::arg("uses_gradients"), py::arg("optimizer") = 0)
      .def("end_update", OfReplicas(&nn::Replicas::EndUpdate))
      .def("cancel_update", OfReplicas(&nn::Replicas::CancelUpdate))
      .def("set_buffers", &SetBuffers, py::arg("buffers"))
      .def_property_readonly("buffers_are_due",
                             [](const ModelReplicas& model) { return model.replicas()->buffers_are_due(); })
      .def("synchronize_buffers", OfReplicas(&nn::Replicas::SynchronizeBuffers))
      .def("broadcast", OfReplicas(&nn::Replicas::Broadcast))
      .def("broadcast_optimizer_state", &BroadcastOptimizerState, py::arg("state"))
      .def("flush", OfReplicas(&nn::Replicas::Flush))
      .def("agree_on_overflow", OfReplicas(&nn::Replicas::AgreeOnOverflow), py::arg("mine"))
      .def("set_loss_scale", OfReplicas(&nn::Replicas::SetLossScale), py::arg("scale"))
      .def("agree_on_mistake", OfReplicas(&nn::Replicas::AgreeOnMistake), py::arg("call"), py::arg("mistake"))
      .def("on_any_rank", OfReplicas(&nn::Replicas::OnAnyRank), py::arg("mine"))
      .def("weights_were_written", OfReplicas(&nn::Replicas::WeightsWereWritten))
      .def("check_replicas", OfReplicas(&nn::Replicas::CheckReplicas))
      .def("save_state",
           [](const ModelReplicas& model) { return Saved([&] { return model.replicas()->SaveState(); }); })
      .def("load_state", OfReplicas(&nn::Replicas::LoadState), py::arg("states"))
      .def("set_synchronize", OfSynchronizer(&Synchronizer::set_synchronize), py::arg("synchronize"))
      .def("pause", OfSynchronizer(&Synchronizer::Pause))
      .def("resume", OfSynchronizer(&Synchronizer::Resume))
      .def("stop", OfSynchronizer(&Synchronizer::Stop))
      .def("take_statistics", &TakeStatistics)
      .def_property_readonly("tuning", &TuningOf)
      .def("make_qadam", &MakeQAdam, py::arg("parameters"), py::arg("groups"))
      .def(
          "step_qadam", [](const ModelReplicas& model) { model.qadam()->Step(); }, no_gil)
      .def_property_readonly("qadam_frozen", [](const ModelReplicas& model) { return model.qadam()->frozen(); })
      .def("save_qadam", [](const ModelReplicas& model) { return Saved([&] { return model.qadam()->SaveState(); }); })
      .def(
          "load_qadam", [](const ModelReplicas& model, const std::string& state) { model.qadam()->LoadState(state); },
          py::arg("state"), no_gil)
      .def_property_readonly("qadam_begun_anew",
                             [](const ModelReplicas& model) { return model.qadam()->begun_anew(); });
}

}  // namespace tutti::dist
