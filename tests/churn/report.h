// What a run of the churn has found, and how long news took.
#ifndef TUTTI_TESTS_CHURN_REPORT_H_
#define TUTTI_TESTS_CHURN_REPORT_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/churn/round.h"

namespace tutti::churn {

enum class Kind : std::uint8_t {
  kWrongResult,  // a call ended OK with wrong numbers, or replicas differ
  kWrongWrite,   // memory of an ended call was written
  kHang,         // a rank has not ended within the bound
  kWrongBlame,   // an error that names no rank or another one than the victim
  kLateNews,     // survivors heard of an end by their timeout, and not from the end itself
  kError,        // an error where nothing had failed
  kLeak,
  kCrash,  // a rank ended by a signal, or with an exit code
};
inline constexpr int kKinds = 8;
absl::string_view Name(Kind kind);

struct Finding {
  Kind kind;
  std::string text;
};

class Durations {
 public:
  void Add(absl::Duration duration) { all_.push_back(duration); }
  bool empty() const { return all_.empty(); }
  // The shortest duration that `percent` (1 … 100) percent of the durations do not exceed. At least one must have been
  // added.
  absl::Duration Percentile(std::size_t percent) const;
  // Text such as "p50 3ms, p99 20ms, max 31ms of 120".
  std::string ToString() const;

 private:
  std::vector<absl::Duration> all_;
};

// How late news may be, in 99 of 100 cases.
struct NewsBounds {
  absl::Duration of_kill = absl::Seconds(3);  // after the kill
  absl::Duration of_stop = absl::Seconds(3);  // after the survivor's deadline
};

struct Report {
  std::array<int, kAllFaults.size()> rounds{};  // the number of rounds with each fault
  std::array<int, kKinds> findings{};
  Durations after_kill;   // from a kill to the error at a survivor
  Durations after_stop;   // from a survivor's deadline to its error
  Durations after_leave;  // from the last line of a rank that leaves to the error
  int failed_rounds = 0;

  void Count(const std::vector<Finding>& found);
  // The findings of late news, over all rounds: percentiles beyond the bounds.
  std::vector<Finding> LateNews(const NewsBounds& bounds) const;
  std::string ToString() const;
};

}  // namespace tutti::churn

#endif  // TUTTI_TESTS_CHURN_REPORT_H_
