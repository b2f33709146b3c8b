// How long a thread has stood in line for a processor: it could run, and other threads ran instead.
#ifndef TUTTI_BINDINGS_CLI_BENCH_PROCESSOR_LINE_H_
#define TUTTI_BINDINGS_CLI_BENCH_PROCESSOR_LINE_H_

#include <cstdint>

namespace tutti::cli {

// Whether a call was long for want of a processor: a rank stood in line for half of what the call took beyond the
// median of the calls, or longer.
inline bool WantedProcessor(double in_line, double time, double median) {
  return in_line > 0 && time > median && 2 * in_line >= time - median;
}

class ProcessorLine {
 public:
  // Tells the times of the calling thread.
  ProcessorLine();
  ~ProcessorLine();
  ProcessorLine(const ProcessorLine&) = delete;
  ProcessorLine& operator=(const ProcessorLine&) = delete;

  // Nanoseconds since the thread began; negative where the kernel does not tell (/proc/thread-self/schedstat). A call
  // of Nanos takes about a microsecond.
  std::int64_t Nanos() const;

 private:
  const int file_;
};

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_PROCESSOR_LINE_H_
