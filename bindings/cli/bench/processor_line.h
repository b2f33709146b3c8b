// How long a thread has stood in line for a processor: it could run, and other threads ran instead.
#ifndef TUTTI_BINDINGS_CLI_BENCH_PROCESSOR_LINE_H_
#define TUTTI_BINDINGS_CLI_BENCH_PROCESSOR_LINE_H_

#include <cstdint>

namespace tutti::cli {

class ProcessorLine {
 public:
  // Of the calling thread.
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
