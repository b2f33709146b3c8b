// What `tutti bench` was asked to measure.
#ifndef TUTTI_BINDINGS_CLI_BENCH_OPTIONS_H_
#define TUTTI_BINDINGS_CLI_BENCH_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "bindings/cli/bench/places.h"
#include "bindings/cli/traffic.h"
#include "tutti/buffer.h"
#include "tutti/dtype.h"

namespace tutti::cli {

// One case of a benchmark: what is measured at every size, and how. sweep.h makes several cases of flags that name
// several collectives, types, operators, schedules or codecs.
struct BenchOptions {
  std::string collective;  // a name of BenchNames()
  int ranks = 2;
  bool bind = false;  // each rank of a machine, to a share of its processors
  std::int64_t min_bytes = 4;
  std::int64_t max_bytes = std::int64_t{256} << 20;
  std::int64_t factor = 4;
  TrafficOptions traffic;
  // Also in place where the collective can be, beside the out-of-place calls of `traffic`.
  bool both_places = false;
  std::string schedule;  // empty: the selector chooses
  // Sizes that the schedule does not serve are left out, with a note, and are no error.
  bool skips_unserved = false;
  std::string codec;  // with its options, as in strategy names; empty: values travel as they are
  std::string transport = "auto";
  std::string device = "cpu";  // or "cuda": buffers are memory of GPUs
  std::string peer;            // "nccl": raw NCCL is measured as well; empty: nothing is
  bool messages = false;       // never map peers' memory
  int calls = 0;               // timed calls of each size; 0: as many as fit into min_time
  int warm_ups = 5;
  double min_time = 0.25;  // seconds
  bool rewrite = false;
  double pause = 0;               // seconds that every rank sleeps before each call
  std::string buffers = "arena";  // or "private"
  bool check = true;
  bool latency = false;  // ranks tell for each call how long they stood in line for a processor

  // Whether ranks do something, and meet, before each call, outside of the timed region.
  bool prepares_calls() const { return rewrite || pause > 0; }
  bool on_device() const { return device == "cuda"; }
  MemoryKind memory_kind() const { return on_device() ? MemoryKind::kDevice : MemoryKind::kHost; }
};

// How long ranks stood in line for a processor while calls were timed.
struct ProcessorWaits {
  // In the longest call: the rank that stood in line longest, and its time there.
  Rank rank = 0;
  double longest_us = 0;
  // The longest calls, a hundredth of all and at least one, and in how many of them some rank stood in line for half of
  // what the call took beyond the median, or longer.
  int slow_calls = 0;
  int slow_calls_in_line = 0;
};

// One line of the table. `wrong` is -1 when results were not checked.
struct BenchRow {
  std::string collective;
  std::string library;           // "tutti" or "nccl"
  std::string schedule;          // empty for calls of NCCL, and with a codec
  bool schedule_chosen = false;  // by the selector, and not by --schedule or TUTTI_SCHEDULE
  std::string codec;             // that encodes what travels; empty: none
  std::string transport;
  int ranks = 0;
  BenchPlaces places = {};
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  DType dtype = DType::kF32;
  std::string op;                           // "none" for collectives that do not reduce
  std::optional<Rank> root = std::nullopt;  // of collectives that have one
  double time_us = 0;  // the mean: all timed calls, on the rank that took longest for them, by their number
  double p50_us = 0;
  double p90_us = 0;
  double p95_us = 0;
  double p99_us = 0;
  double p99_9_us = 0;
  double max_us = 0;
  // The longest call: its number, from 1; the rank that took longest, whose time is max_us; the rank that was through
  // first, and its time.
  int longest_call = 0;
  Rank slowest_rank = 0;
  Rank fastest_rank = 0;
  double fastest_us = 0;
  std::optional<ProcessorWaits> waits = std::nullopt;  // with --latency, on the host, where the kernel tells
  // How often, during all timed calls and what comes before each (--rewrite, --pause), ranks lost their processor to
  // others, and slept.
  std::int64_t preempted = 0;
  std::int64_t slept = 0;
  // Processor time of the engine's threads in a call and what comes before, the mean over calls and ranks; and the part
  // of it that went into waiting for peers.
  double engine_cpu_us = 0;
  double engine_waiting_us = 0;
  // The time that the host takes to make a call on the memory of a GPU, without waiting for the end: the mean, as for
  // time_us; 0 elsewhere.
  double host_us = 0;
  double algbw_gb_s = 0;
  double busbw_gb_s = 0;
  std::int64_t wrong = 0;
  std::string device;
  std::string buffers;
  bool messages = false;
  bool rewrite = false;
  double pause_s = 0;
  bool in_place = false;
  int repeat = 1;  // which of the --repeats
  int calls = 0;
  double predicted_us = 0;  // what the selector predicts of the schedule; 0 where it predicts nothing
  // The library, build or setting that was measured, and the link, in words, of rows of bench/peers; "" elsewhere.
  std::string variant = {};
  std::string link = {};
};

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_OPTIONS_H_
