// Whether a call was long because a rank waited for a processor.
#ifndef TUTTI_BINDINGS_CLI_BENCH_WANTED_PROCESSOR_H_
#define TUTTI_BINDINGS_CLI_BENCH_WANTED_PROCESSOR_H_

namespace tutti::cli {

// Whether a call was long for want of a processor: a rank stood in line (ProcessorLine) for half of what the call took
// beyond the median of the calls, or longer.
inline bool WantedProcessor(double in_line, double time, double median) {
  return in_line > 0 && time > median && 2 * in_line >= time - median;
}

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_WANTED_PROCESSOR_H_
