#include "comm/link_fit.h"

#include <algorithm>
#include <cstdint>

namespace tutti {
namespace {

// From links faster than any memory to modems.
constexpr double kMinMessage = 1e-8;
constexpr double kMaxMessage = 10;
constexpr double kMinByte = 1e-12;
constexpr double kMaxByte = 1e-3;

// The seconds that a message of `bytes` is predicted to take, from the start of its Send to the end of its Recv.
double Predicted(const LinkModel& link, std::int64_t bytes) {
  return SendingSeconds(link, bytes) + link.latency_s + TransferSeconds(link, bytes) + ReceivingSeconds(link, bytes);
}

double PredictedPerByte(const LinkModel& link) {
  constexpr std::int64_t kLong = 1 << 20;
  return (Predicted(link, kLong) - Predicted(link, 0)) / kLong;
}

// The seconds of a processor that each end of a message takes: of a message to each of several peers at once, only the
// first is waited for, and the others take both ends' time.
double MessageSeconds(double least, double one_message_s, const LinkNanos& nanos) {
  const double most = std::max(least, one_message_s / 2);
  if (nanos.peers < 2) return least;
  const double others_s = static_cast<double>(nanos.crowd) * 1e-9 - one_message_s;
  return std::clamp(others_s / (2.0 * (nanos.peers - 1)), least, most);
}

// The seconds of a processor that each end of a message takes where ranks stand in line for processors, because their
// hosts share them, in calls as in the crowd; 0 where ranks do not. A message to each of several peers then takes
// longer than as many messages of two ranks alone, one after the other.
double SecondsInCrowd(double one_message_s, const LinkNanos& nanos) {
  constexpr double kMinInLine = 0.2;    // of the time
  constexpr double kMaxTimesAlone = 4;  // a rank that was stopped meanwhile must not make every message slow
  if (nanos.peers < 2) return 0;
  const auto crowd = static_cast<double>(nanos.crowd);
  if (static_cast<double>(nanos.in_line) < kMinInLine * crowd) return 0;
  const double alone_s = one_message_s / 2;
  const double in_crowd_s = crowd * 1e-9 / (2.0 * nanos.messages);
  return in_crowd_s > alone_s ? std::min(in_crowd_s, kMaxTimesAlone * alone_s) : 0;
}

}  // namespace

LinkModel FitLink(const LinkModel& standard, double step_s, const LinkNanos& nanos, bool between_nodes) {
  const double message_s = std::clamp(static_cast<double>(nanos.trip) * 0.5e-9 - step_s, kMinMessage, kMaxMessage);
  const double byte_s =
      std::clamp(static_cast<double>(nanos.exchange) * 1e-9 / static_cast<double>(nanos.bytes), kMinByte, kMaxByte);
  LinkModel link = standard;
  if (between_nodes) link.message_s = MessageSeconds(standard.message_s, message_s, nanos);
  const double slower = message_s / Predicted(link, 0);
  const double narrower = byte_s / PredictedPerByte(link);
  LinkModel fit = link;
  if (between_nodes && slower > 1) {
    fit.latency_s += message_s - Predicted(link, 0);
  } else {
    fit.latency_s *= slower;
    fit.message_s *= slower;
  }
  if (between_nodes) fit.message_s = std::max(fit.message_s, SecondsInCrowd(message_s, nanos));
  if (between_nodes && narrower > 1) {
    fit.bytes_per_s = 1 / (1 / link.bytes_per_s + byte_s - PredictedPerByte(link));
  } else {
    fit.bytes_per_s /= narrower;
    fit.copy_bytes_per_s /= narrower;
    fit.announced_bytes_per_s /= narrower;
  }
  return fit;
}

}  // namespace tutti
