// The extension module tutti._C: the core of Tutti and its backend for torch.distributed, for Python.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "absl/time/clock.h"
#include "bindings/torch/process_group/gradient_hook.h"
#include "bindings/torch/process_group/interpreter_exit.h"
#include "bindings/torch/process_group/interrupt.h"
#include "bindings/torch/process_group/model_replicas_python.h"
#include "bindings/torch/process_group/process_group_tutti.h"
#include "bindings/torch/process_group/timeout.h"
#include "bindings/torch/process_group/without_gil.h"
#include "tutti/algorithm.h"
#include "tutti/bootstrap.h"
#include "tutti/torch/errors.h"
#include "tutti/version.h"

namespace py = pybind11;

namespace tutti::dist {
namespace {

c10::intrusive_ptr<ProcessGroupTutti> CreateBackend(const ::c10d::DistributedBackendOptions& options) {
  ProcessGroupTutti::Request request = {
      .store = options.store,
      .rank = options.group_rank,
      .size = options.group_size,
      .timeout =
          nn::ValueOrThrow(TimeoutOfGroup(std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout))),
      .name = options.group_id,
  };
  request.global_ranks.assign(options.global_ranks_in_group.begin(), options.global_ranks_in_group.end());
  return ProcessGroupTutti::Create(request);
}

std::vector<py::bytes> Meet(const std::string& value, double timeout) {
  std::vector<std::string> values;
  {
    const WithoutGil release;
    const absl::Time deadline = absl::Now() + absl::Seconds(timeout);
    const Bootstrap job = nn::ValueOrThrow(BootstrapFromEnvironment(absl::Seconds(timeout)));
    values = nn::ValueOrThrow(
        ExchangeBlobs(*job.store, "torch's store", job.identity.rank, job.identity.size, value, deadline));
  }
  return {values.begin(), values.end()};
}

}  // namespace
}  // namespace tutti::dist

PYBIND11_MODULE(_C, module) {
  using tutti::dist::ProcessGroupTutti;
  py::module_::import("torch._C._distributed_c10d");  // the types that the backend is made of
  tutti::dist::HearOfSignalsInWaits();
  module.attr("__version__") = std::string(tutti::Version());
  using Options = ProcessGroupTutti::CopyableOptions;
  py::class_<Options, c10::intrusive_ptr<Options>, ::c10d::Backend::Options>(module, "Options",
                                                                             "The options of one process group.")
      .def("__deepcopy__", [](const Options& self, const py::dict&) { return c10::make_intrusive<Options>(self); });
  py::class_<ProcessGroupTutti, c10::intrusive_ptr<ProcessGroupTutti>, ::c10d::Backend>(
      module, "ProcessGroupTutti", "The backend \"tutti\" of torch.distributed.")
      .def("empty", &ProcessGroupTutti::Empty, py::arg("sizes"), py::arg("dtype"),
           "A tensor in the memory that the ranks of the node map.")
      .def_property_readonly("timeout", &ProcessGroupTutti::timeout, "How long a call may wait for other ranks.")
      .def_property_readonly("options", &ProcessGroupTutti::getBackendOptions,
                             "What torch.distributed.split_group copies and gives to the new group.")
      // torch calls this function on the ranks outside of a new group. Tutti makes a group by its members alone, so
      // there is nothing to do.
      .def("perform_nocolor_split", [](ProcessGroupTutti&, const py::object&) {});
  module.def("create_backend", &tutti::dist::CreateBackend, py::arg("options"),
             py::call_guard<tutti::dist::WithoutGil>(),
             "Makes the backend of one process group, together with the other members of the group.");
  using tutti::dist::GradientExchange;
  py::class_<GradientExchange, std::shared_ptr<GradientExchange>>(module, "GradientExchange",
                                                                  "Exchanges the gradients of one model.")
      // The constructor releases the interpreter's lock itself: a call_guard would also cover what pybind11 writes
      // about the new object.
      .def(py::init([](ProcessGroupTutti& group, const GradientExchange::NamedParameters& parameters,
                       const std::string& strategy) {
             const tutti::dist::WithoutGil no_gil;
             return GradientExchange::Create(group, parameters, strategy);
           }),
           py::arg("group"), py::arg("parameters"), py::arg("strategy"))
      .def(
          "register",
          [](const std::shared_ptr<GradientExchange>& exchange, const std::shared_ptr<::c10d::Reducer>& reducer) {
            GradientExchange::Register(exchange, *reducer);
          },
          py::arg("reducer"), "Gives the buckets of DDP's reducer to this exchange.")
      .def_property_readonly("strategy", &GradientExchange::strategy)
      .def_property_readonly("step", &GradientExchange::step)
      .def("save_state",
           [](const GradientExchange& exchange) {
             std::string state;
             {
               const tutti::dist::WithoutGil no_gil;  // SaveState waits for exchanges under way
               state = exchange.SaveState();
             }
             return py::bytes(state);
           })
      .def("load_state", &GradientExchange::LoadState, py::arg("states"), py::call_guard<tutti::dist::WithoutGil>())
      .def("set_loss_scale", &GradientExchange::SetLossScale, py::arg("scale"),
           py::call_guard<tutti::dist::WithoutGil>());
  tutti::dist::DefineModelReplicas(module);
  module.def(
      "launcher_identity",
      [] {
        const tutti::Identity identity = tutti::nn::ValueOrThrow(tutti::IdentityFromEnvironment());
        return py::make_tuple(identity.rank, identity.size, identity.local_rank, identity.local_size,
                              identity.launcher);
      },
      "Rank, size, local rank, local size and name, as the launcher of this process says.");
  module.def(
      "assumes_all_here", [] { return tutti::nn::ValueOrThrow(tutti::IdentityFromEnvironment()).assumes_all_here; },
      "Whether all ranks are taken to be on this node because the launcher does not say which are.");
  module.def(
      "rendezvous_address",
      [] {
        return tutti::nn::ValueOrThrow(
            tutti::RendezvousAddress(tutti::nn::ValueOrThrow(tutti::IdentityFromEnvironment())));
      },
      "The host:port where rank 0 of a job on several nodes can serve.");
  module.def(
      "timeout_of_group",
      [](std::chrono::milliseconds given) { return tutti::nn::ValueOrThrow(tutti::dist::TimeoutOfGroup(given)); },
      py::arg("given"),
      "The timeout of a group for which torch gives this one: TUTTI_TIMEOUT in place of torch's default.");
  module.def("meet", &tutti::dist::Meet, py::arg("value"), py::arg("timeout"),
             "Gives every rank of the launcher's job the values of all ranks.");
  module.def(
      "parse_strategy",
      [](const std::string& name) {
        const tutti::Strategy strategy = tutti::nn::ValueOrThrow(tutti::ParseStrategy(name));
        return py::make_tuple(strategy.ToString(), std::string(tutti::Name(strategy.algorithm->exchanges)));
      },
      py::arg("name"), "The strategy name in full, and what its ranks exchange.");
  module.def(
      "autotunes_by_default", [] { return tutti::nn::ValueOrThrow(tutti::AutotunesByDefault()); },
      "Whether TUTTI_AUTOTUNE=1 asks for autotuning.");
  module.def("abort_all_groups", &tutti::dist::AbortAllGroups, py::arg("reason"),
             py::call_guard<tutti::dist::WithoutGil>(),
             "Ends all calls of every group and model on all ranks; the reason follows the rank in their errors.");
  module.def("end_all_groups", &tutti::dist::EndAllGroups, py::call_guard<py::gil_scoped_release>(),
             "Leaves every process group; the interpreter ends.");
}
