// How a thread computes with floating numbers: how results are rounded, and whether subnormal ones become zero. Every
// thread has a mode of its own, which a program may change (fesetround, torch.set_flush_denormal).
#ifndef TUTTI_BASE_FLOATING_MODE_H_
#define TUTTI_BASE_FLOATING_MODE_H_

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tutti {

// As long as the object lives, its thread computes in the mode in which programs begin: rounding to nearest, subnormal
// numbers kept, no traps. Only where another mode is found is a register written, which is slow. On processors other
// than those of x86-64 and AArch64 the mode stays as it is.
class DefaultFloatingMode {
 public:
  DefaultFloatingMode() : before_(Read()) {
    if (differs()) Write(kDefault);
  }
  ~DefaultFloatingMode() {
    if (differs()) Write(before_);
  }
  DefaultFloatingMode(const DefaultFloatingMode&) = delete;
  DefaultFloatingMode& operator=(const DefaultFloatingMode&) = delete;

 private:
#if defined(__x86_64__)
  using Mode = std::uint32_t;  // MXCSR
  static constexpr Mode kDefault = 0x1f80;
  static constexpr Mode kRecords = 0x3f;  // which exceptions there were: no part of the mode
  static Mode Read() { return _mm_getcsr(); }
  static void Write(Mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Mode = std::uint64_t;  // FPCR
  static constexpr Mode kDefault = 0;
  static constexpr Mode kRecords = 0;
  static Mode Read() {
    Mode mode = 0;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void Write(Mode mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
  using Mode = std::uint32_t;
  static constexpr Mode kDefault = 0;
  static constexpr Mode kRecords = 0;
  static Mode Read() { return kDefault; }
  static void Write(Mode /*mode*/) {}
#endif

  bool differs() const { return (before_ & ~kRecords) != kDefault; }

  const Mode before_;
};

}  // namespace tutti

#endif  // TUTTI_BASE_FLOATING_MODE_H_
