#include "tutti/tuning.h"

#include "absl/strings/str_cat.h"
#include "base/config.h"

namespace tutti {

std::string ToString(const Tuning& tuning) {
  std::string text =
      absl::StrCat("bucket_bytes=", tuning.bucket_bytes, ", first_bucket_bytes=", tuning.first_bucket_bytes);
  if (!tuning.schedule.empty()) absl::StrAppend(&text, ", schedule=", tuning.schedule);
  return absl::StrCat(text, ", hierarchical=", tuning.hierarchical ? "true" : "false");
}

absl::string_view Name(TuningState state) {
  switch (state) {
    case TuningState::kOff:
      return "off";
    case TuningState::kNothingToTune:
      return "nothing to tune";
    case TuningState::kTuning:
      return "tuning";
    case TuningState::kDone:
      break;
  }
  return "done";
}

double TuningReport::gain() const { return start.seconds > 0 ? 1 - choice.seconds / start.seconds : 0; }

absl::StatusOr<bool> AutotunesByDefault() {
  const absl::StatusOr<Config>& config = LoadConfig();
  if (!config.ok()) return config.status();
  return config->autotune;
}

}  // namespace tutti
