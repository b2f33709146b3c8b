#include "bindings/cli/bench/flags.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bindings/cli/flags.h"
#include "bindings/cli/sizes.h"
#include "bindings/cli/svg_shapes.h"
#include "bindings/cli/traffic.h"

namespace tutti::cli {
namespace {

void AddSizes(CLI::App& bench, BenchOptions& options) {
  AddParsed(bench, "-b,--min-bytes", options.min_bytes, ParseBytes, "BYTES", "4",
            "Smallest size; after 0 comes one element");
  AddParsed(bench, "-e,--max-bytes", options.max_bytes, ParseBytes, "BYTES", "256M", "Largest size");
  bench.add_option("-f,--factor", options.factor, "Each size is this many times the one before")
      ->check(WholeNumberWithin(2, 1 << 30))
      ->capture_default_str();
}

// Each rank keeps the times of the calls of a size, which take some 100 MB for so many.
constexpr int kMaxIterations = 10'000'000;

void AddSweep(CLI::App& bench, BenchFlags& flags) {
  BenchSweep& sweep = flags.sweep;
  AddParsed(bench, "-d,--dtype", sweep.dtypes, ParseDTypes, "TYPES", "f32",
            absl::StrCat("all, or some of ", NamesOfDTypes(), ": f32,bf16"));
  AddParsed(bench, "-o,--op", sweep.ops, ParseReduceOps, "OPS", "sum",
            absl::StrCat("all, or some of ", NamesOfOps(), ": sum,max"));
  bench.add_option("-r,--root", flags.options.traffic.root, "Root of broadcast, reduce, gather and scatter")
      ->check(WholeNumberWithin(0, kMaxRanks - 1))
      ->capture_default_str();
  AddParsed(bench, "--schedule", sweep.schedules, ParseScheduleNames, "NAMES", "",
            "Schedules to measure: all, or some (ring,direct); without it the one that would be chosen");
  bench
      .add_option("--codec", sweep.codecs,
                  "Codec, with options if any (uint8_block,block=512): measures the sum in messages of this codec. May "
                  "be given several times; none: values travel as they are; all: none and every codec")
      ->type_name("CODEC")
      ->allow_extra_args(false)
      // Buffers that nobody rewrites hold zeros, which take other paths through a codec than gradients do. The flag
      // --no-rewrite, which is added later, has the last word.
      ->each([&flags](const std::string&) { flags.options.rewrite = true; });
  bench.add_flag("--in-place", flags.in_place, "One buffer (the default); with --out-of-place both, in two lines");
  bench.add_flag("--out-of-place", flags.out_of_place, "One buffer for input and one for output");
}

void AddPlaces(CLI::App& bench, BenchOptions& options) {
  bench.add_option("--ranks", options.ranks, "Ranks to start on this machine")
      ->check(WholeNumberWithin(1, kMaxRanks))
      ->capture_default_str();
  bench.add_flag("--bind", options.bind, "Bind each rank of a machine to an equal share of its processors");
  bench.add_option("--transport", options.transport, "auto, ucx (processes) or inproc (threads)")
      ->check(OneOf({"auto", "ucx", "inproc"}))
      ->capture_default_str();
  bench.add_option("--device", options.device, "cpu (memory of the host) or cuda (memory of GPUs, one for each rank)")
      ->check(OneOf({"cpu", "cuda"}))
      ->capture_default_str();
  bench
      .add_option("--peer", options.peer,
                  "nccl: also measure NCCL as it is without Tutti, in turns; with --device cuda")
      ->check(OneOf({"nccl"}));
  bench.add_flag("--messages", options.messages, "Send messages even where peers' memory could be mapped");
  bench.add_option("--buffers", options.buffers, "arena (peers can map it) or private (ordinary memory)")
      ->check(OneOf({"arena", "private"}))
      ->capture_default_str();
}

void AddCalls(CLI::App& bench, BenchFlags& flags) {
  BenchOptions& options = flags.options;
  CLI::Option* calls = bench.add_option("--iters", options.calls, "Timed calls of each size, in place of --min-time")
                           ->check(WholeNumberWithin(1, kMaxIterations));
  bench
      .add_option("-w,--warmup", options.warm_ups,
                  "Calls before the timed ones, at least: without --iters more, until they are steady")
      ->check(WholeNumberWithin(0, kMaxIterations))
      ->capture_default_str();
  bench
      .add_option(
          "--min-time", options.min_time,
          "Approximate seconds that the timed calls of one size take together; at least 5 and at most 20,000 calls "
          "are timed")
      ->check(NumberWithin(1e-6, 1e6))
      ->capture_default_str()
      ->excludes(calls);
  bench.add_option("--repeats", flags.repeats, "How often everything is measured, one time after the other")
      ->check(WholeNumberWithin(1, 1 << 20))
      ->capture_default_str();
  bench.add_flag("--rewrite,!--no-rewrite", options.rewrite,
                 "Every rank rewrites its whole input before each call, untimed (the default with --codec)");
  bench
      .add_option("--pause", options.pause,
                  "Seconds that every rank sleeps before each call, untimed, as training computes between its calls")
      ->check(NumberWithin(0, 3600))
      ->capture_default_str();
  bench.add_flag("--no-check", flags.no_check, "Do not compare results with what they should be");
}

absl::StatusOr<std::string> ParsePictureFile(absl::string_view file) {
  const absl::StatusOr<std::string> named = ParseFile(file);
  return named.ok() ? ParseSvgFile(file) : named;
}

void AddOutputs(CLI::App& bench, BenchFlags& flags) {
  BenchOutputs& outputs = flags.outputs;
  bench.add_flag(
      "--latency", flags.latency,
      "Below each line: which call took longest, on which rank, which rank was through it first, whether long calls "
      "waited for a processor, and what the engine's threads took of one");
  AddParsed(bench, "--json", outputs.json, ParseFile, "FILE", "",
            "Also write the rows to this file; -: to standard output, and the table to standard error");
  AddParsed(bench, "--jsonl", outputs.jsonl, ParseFile, "FILE", "", "The same as JSON Lines: one row per line");
  AddParsed(bench, "--csv", outputs.csv, ParseFile, "FILE", "", "The same as CSV, behind lines that begin with #");
  AddParsed(bench, "--plot", outputs.plot, ParsePictureFile, "FILE.svg", "",
            "Draw time and bus bandwidth against the size, predicted ones dashed; with --compare all runs in one");
  bench
      .add_option(
          "--compare", outputs.compare,
          "Files of earlier runs (--json, --jsonl), to be compared with this one or, without a collective, with "
          "each other; nothing is then measured")
      ->type_name("FILE");
}

struct FlagOfOthers {
  const char* names;
  const char* answer;
};

// Options of nccl-tests and of the OSU benchmarks.
constexpr FlagOfOthers kFlagsOfOthers[] = {
    {"-n", "the calls of nccl-tests, but the ranks of mpirun and tutti launch: write --iters or --ranks"},
    {"-g,--ngpus", "GPUs of a process, of which a rank has one here: for 8 GPUs write --ranks 8 --device cuda"},
    {"-t,--nthreads", "threads of a process, of which each is a rank: for 8 write --ranks 8 --transport inproc"},
    {"-i,--stepbytes", "a step in bytes of nccl-tests, but the calls of OSU: write --factor or --iters"},
    {"-m,--agg_iters",
     "calls in one group of nccl-tests, but sizes of OSU: calls on GPUs are timed 16 at a time; for sizes "
     "write --min-bytes and --max-bytes"},
    {"-x", "the warm-up calls of OSU: write --warmup"},
    {"-N,--run_cycles", "how often all is measured: write --repeats"},
    {"-c,--check,--validation", "results are checked at every size: leave -c 1 out; in place of -c 0 write --no-check"},
    {"-a,--average", "the time of a call is the maximum over the ranks, which nccl-tests calls -a 3; leave -a out"},
    {"-C,--report_cputime", "with --device cuda the column host is always there; leave -C out"},
    {"-z,--blocking", "a call on GPUs is waited for once for every 16 of them; for each call write --rewrite"},
    {"-y,--stream_null", "calls have a stream of their own, which the default stream waits for; leave -y out"},
    {"-T,--timeout", "the deadline of a call is TUTTI_TIMEOUT, in seconds: write TUTTI_TIMEOUT=60 tutti bench ..."},
    {"-G,--cudagraph", "calls are not captured in CUDA graphs; leave -G out"},
    {"-R,--local_register",
     "buffers of the arena are always registered; for others write --buffers private; with --device cuda leave -R out, "
     "because memory of GPUs is not registered with NCCL"},
    {"-p,--parallel_init", "ranks always join in parallel; leave -p out"},
    {"-J,--output_file", "write --json"},
    {"--output,--out", "write --json FILE, --jsonl FILE or --csv FILE"},
    {"--np,--nprocs", "the ranks of mpirun: write --ranks"},
    {"-S,--report_timestamps", "the date of the run is in every file (--json, --jsonl, --csv); leave -S out"},
    {"--warmup_iters", "write --warmup"},
    {"--minbytes", "write --min-bytes"},
    {"--maxbytes", "write --max-bytes"},
    {"--stepfactor", "write --factor"},
    {"--message-size", "write --min-bytes and --max-bytes"},
    {"--datatype", "write --dtype"},
    {"-M,--mem-limit", "the largest size is --max-bytes, whose buffers must fit into memory; leave -M out"},
    {"-u,--unit", "sizes are in bytes, with K, M and G for 2^10, 2^20 and 2^30; leave -u out"},
};

}  // namespace

void AddBenchFlags(CLI::App& bench, BenchFlags& flags) {
  AddParsed(bench, "collective", flags.sweep.collectives, ParseCollectives, "NAMES", "",
            "all, or some of " + absl::StrJoin(BenchNames(), ", ") + ", with commas between them");
  AddPlaces(bench, flags.options);
  AddSizes(bench, flags.options);
  AddSweep(bench, flags);
  AddCalls(bench, flags);
  AddOutputs(bench, flags);
}

void RefuseFlagsOfOthers(CLI::App& bench) {
  for (const FlagOfOthers& flag : kFlagsOfOthers) {
    const std::string names = flag.names;
    bench
        .add_option_function<std::string>(
            names, [names, &flag](const std::string&) { throw CLI::ValidationError(names, flag.answer); })
        ->expected(0, 1)
        ->group("");
  }
}

absl::StatusOr<BenchCases> CasesOfFlags(const BenchFlags& flags, int ranks) {
  BenchOptions options = flags.options;
  options.check = !flags.no_check;
  options.latency = flags.latency;
  options.traffic.in_place = !flags.out_of_place;
  options.both_places = flags.in_place && flags.out_of_place;
  return CasesOf(flags.sweep, options, ranks);
}

}  // namespace tutti::cli
