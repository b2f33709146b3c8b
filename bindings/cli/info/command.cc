// tutti info: what this build can do on this machine, and how it is configured.
#include "bindings/cli/command.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bindings/cli/processors.h"
#include "tutti/algorithm.h"
#include "tutti/bootstrap.h"
#include "tutti/codec.h"
#include "tutti/config.h"
#include "tutti/devices.h"
#include "tutti/extension.h"
#include "tutti/peer_selection.h"
#include "tutti/schedule.h"
#include "tutti/version.h"

namespace tutti::cli {
namespace {

std::string NetworkDevices() {
  std::set<std::string> names;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return "unknown";
  for (const ifaddrs* i = interfaces; i != nullptr; i = i->ifa_next) {
    if ((i->ifa_flags & IFF_UP) != 0) names.insert(i->ifa_name);
  }
  freeifaddrs(interfaces);
  return absl::StrJoin(names, ", ");
}

void Line(absl::string_view what, absl::string_view value) {
  std::fputs(absl::StrFormat("  %-22s %s\n", what, value).c_str(), stdout);
}

void Heading(absl::string_view text) { std::fputs(absl::StrCat(text, "\n").c_str(), stdout); }

std::string Gibibytes(double bytes) { return absl::StrFormat("%.1f GiB", bytes / (1 << 30)); }

void PrintNcclVersion() {
  const absl::StatusOr<NcclSummary> nccl = DescribeNccl();
  if (!nccl.ok()) return Line("NCCL", nccl.status().message());
  Line("NCCL", absl::StrCat(nccl->version, " (", nccl->path, ")"));
  Line("", absl::StrCat("has ", absl::StrJoin(nccl->features, ", ")));
  if (!nccl->missing.empty()) Line("", absl::StrCat("lacks ", absl::StrJoin(nccl->missing, ", ")));
}

void PrintGpus(const absl::StatusOr<CudaSummary>& cuda) {
  if (!cuda.ok()) return;
  for (std::size_t i = 0; i < cuda->devices.size(); ++i) {
    const DeviceSummary& device = cuda->devices[i];
    Line(absl::StrCat("GPU ", i), absl::StrCat(device.name, ", ", Gibibytes(static_cast<double>(device.memory_bytes)),
                                               ", compute capability ", device.compute_capability));
  }
}

// Users of UCX choose networks by two variables, which this transport overrides: UCX carries nothing between nodes.
void PrintUcxTransport() {
  Line("ucx", "processes: shared memory where ranks have it in common, TCP elsewhere");
  for (const char* const name : {"UCX_TLS", "UCX_NET_DEVICES"}) {
    if (std::getenv(name) == nullptr) continue;
    Line("", absl::StrCat(name, " is set, and has no effect: TUTTI_INTERFACE chooses the network"));
  }
}

void PrintBuild() {
  Heading("Versions");
  Line("tutti", Version());
  Line("compiler", DescribeBuild().in_words());
  const absl::StatusOr<UcxSummary> ucx = DescribeUcx();
  Line("UCX", ucx.ok() ? absl::StrCat(ucx->version, " (", ucx->path, ")") : std::string(ucx.status().message()));
  const absl::StatusOr<CudaSummary> cuda = DescribeCuda();
  Line("CUDA", cuda.ok() ? absl::StrCat(cuda->runtime, " (the driver serves ", cuda->driver, ")")
                         : std::string(cuda.status().message()));
  PrintNcclVersion();
  const std::string extensions = ExtensionNames();
  if (absl::Status extended = ExtensionStatus(); !extended.ok()) Line("extensions", extended.message());
  if (!extensions.empty()) Line("extensions", extensions);
  if (extensions.empty() && ExtensionStatus().ok()) Line("extensions", "none");
  Heading("Transports");
  Line("inproc", "threads of one process");
  if (ucx.ok()) PrintUcxTransport();
  Heading("Devices");
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  Line("processor", DescribeProcessors());
  Line("memory", Gibibytes(memory));
  Line("network", NetworkDevices());
  PrintGpus(cuda);
  Line("in use", UsableDevices().ok() ? "the processor, and GPUs where a program asks for them" : "the processor");
}

void PrintRecords() {
  Heading("Algorithms");
  for (const Algorithm* algorithm : AllAlgorithms()) Line(algorithm->name, algorithm->summary);
  Heading("Codecs");
  for (const Codec* codec : AllCodecs()) Line(codec->name, codec->summary);
  Heading("Peer selections");
  for (const PeerSelection* selection : AllPeerSelections()) Line(selection->name, selection->summary);
  Heading("Schedules");
  for (Collective collective : kAllCollectives) {
    std::vector<absl::string_view> names;
    for (const Schedule* schedule : AllSchedules()) {
      if (schedule->collective == collective) names.push_back(schedule->name);
    }
    Line(Name(collective), absl::StrJoin(names, ", "));
  }
}

// The configuration is read before the schedules are known, so it does not say whether TUTTI_SCHEDULE names any.
absl::Status CheckSchedules(const std::vector<ConfigEntry>& entries) {
  for (const ConfigEntry& entry : entries) {
    if (entry.name != "TUTTI_SCHEDULE") continue;
    const absl::Status named = ParseSchedules(entry.value).status();
    if (!named.ok()) {
      return absl::Status(named.code(), absl::StrCat(entry.name, "=", entry.value, ": ", named.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status PrintConfiguration() {
  const absl::StatusOr<Identity> identity = IdentityFromEnvironment();
  if (!identity.ok()) return identity.status();
  Heading("This process");
  Line("launcher", identity->launcher);
  Line("rank", absl::StrCat(identity->rank, " of ", identity->size));
  const absl::StatusOr<std::vector<ConfigEntry>> entries = EffectiveConfig();
  if (!entries.ok()) return entries.status();
  Heading("Configuration (value, where it comes from)");
  for (const ConfigEntry& entry : *entries) {
    Line(entry.name, absl::StrFormat("%-14s %s", entry.value.empty() ? "-" : entry.value, entry.origin));
  }
  for (const std::string& warning : ConfigWarnings()) Heading(absl::StrCat("warning: ", warning));
  return CheckSchedules(*entries);
}

absl::StatusOr<int> Info() {
  PrintBuild();
  PrintRecords();
  if (absl::Status printed = PrintConfiguration(); !printed.ok()) return printed;
  if (absl::Status extended = ExtensionStatus(); !extended.ok()) return extended;
  return 0;
}

}  // namespace

void AddInfo(CLI::App& app, Invocation& invocation) {
  CLI::App* info =
      app.add_subcommand("info", "Versions, transports, devices, schedules and the configuration in force");
  info->callback([&invocation] {
    invocation.action = Info;
    invocation.runs_without_extensions = true;  // to show what there is, and which one failed
  });
}

}  // namespace tutti::cli
