// How long a thread has stood in line for a processor: it could run, and other threads ran instead.
#ifndef TUTTI_BASE_PROCESSOR_LINE_H_
#define TUTTI_BASE_PROCESSOR_LINE_H_

#include <cstdint>

namespace tutti {

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

}  // namespace tutti

#endif  // TUTTI_BASE_PROCESSOR_LINE_H_
