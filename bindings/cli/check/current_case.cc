#include "bindings/cli/check/current_case.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>

namespace tutti::cli {
namespace {

// Text that a signal handler may read at any moment: empty while it is being changed. Longer text is cut.
class SafeText {
 public:
  void Set(absl::string_view text) {
    size_.store(0);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the text changes only now
    const std::size_t size = std::min(text.size(), sizeof bytes_);
    std::copy_n(text.data(), size, bytes_);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    size_.store(size);
  }
  absl::string_view Get() const { return {bytes_, size_.load()}; }

 private:
  char bytes_[512] = {};
  std::atomic<std::size_t> size_ = 0;
};

constinit SafeText checked_name;
constinit thread_local SafeText current_case;  // faults are signals of the thread that has made them

struct TellingSignal {
  int number;
  absl::string_view name;
};
constexpr TellingSignal kSignals[] = {{SIGSEGV, "SIGSEGV"}, {SIGFPE, "SIGFPE"}, {SIGBUS, "SIGBUS"},
                                      {SIGABRT, "SIGABRT"}, {SIGILL, "SIGILL"}, {SIGINT, "SIGINT"},
                                      {SIGTERM, "SIGTERM"}};

void Write(absl::string_view text) { (void)!::write(STDERR_FILENO, text.data(), text.size()); }

// Calls only what a signal handler may call.
void TellCase(int number) {
  Write("tutti: ");
  for (const TellingSignal& signal : kSignals) {
    if (signal.number == number) Write(signal.name);
  }
  Write(" while this was checked: ");
  Write(checked_name.Get());
  Write(current_case.Get().empty() ? "" : ": ");
  Write(current_case.Get());
  Write("\n");
  (void)std::raise(number);  // ends the process after this function, because the handler is no longer set
}

}  // namespace

void TellCaseOnSignals() {
  // The stack itself may be what is exhausted.
  static std::byte stack[std::size_t{64} << 10];
  const stack_t other_stack = {.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  (void)::sigaltstack(&other_stack, nullptr);
  for (const TellingSignal& signal : kSignals) {
    struct sigaction action = {};
    (void)::sigaction(signal.number, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action.sa_handler = TellCase;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_ONSTACK);
    (void)::sigaction(signal.number, &action, nullptr);
  }
}

void SetCheckedName(absl::string_view name) {
  current_case.Set("");
  checked_name.Set(name);
}

void SetCurrentCase(absl::string_view what) { current_case.Set(what); }

}  // namespace tutti::cli
