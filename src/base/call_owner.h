// The owner of a call: a synchronizer signs its calls with who makes them and what for, and errors about calls say it.
#ifndef TUTTI_BASE_CALL_OWNER_H_
#define TUTTI_BASE_CALL_OWNER_H_

#include <cstdint>
#include <optional>
#include <string>

namespace tutti {

// The round of a call that repeats a backward() is larger by this: an exception has ended the first attempt.
inline constexpr std::uint64_t kRepeatedRound = 1'000'000'000;

// The purpose of a call that a synchronizer makes.
enum class Purpose : std::uint8_t {
  kStep,       // the exchange of a step, or a round in the background
  kOverflow,   // AgreeOnOverflow
  kLossScale,  // SetLossScale
  kFlush,      // Flush
  kState,      // BroadcastState, CheckState, LoadState, Agree
  kUser,       // a call that a user of the synchronizer makes with OwnCall
};

// The maker of a call, a synchronizer, a BucketExchange or one bucket of the latter, and the purpose of the call, which
// CallOptions::owner holds packed into one number. A value.
struct CallOwner {
  enum class Kind : std::uint8_t { kSynchronizer, kBucketExchange, kBucket };

  static constexpr std::uint32_t kMaxNumber = (1U << 26) - 1;

  // The value of CallOptions::owner, at least 2^31: smaller ones are those of users who number their calls themselves.
  std::uint32_t Pack() const;
  // The owner that has been packed into `owner`; none where `owner` is a user's, or no owner has ever been packed so.
  static std::optional<CallOwner> Unpack(std::uint32_t owner);

  bool operator==(const CallOwner&) const = default;

  Kind kind = Kind::kSynchronizer;
  Purpose purpose = Purpose::kStep;
  std::uint32_t number = 0;  // up to kMaxNumber
};

// " for the exchange of synchronizer 2, round 13", from CallOptions::owner and CallOptions::round; empty where both are
// 0.
std::string DescribeOwner(std::uint32_t owner, std::uint64_t round);

// The mistake of a program in which calls of these owners and rounds meet, as the end of a sentence, which begins with
// a semicolon; empty where the numbers do not tell the mistake.
std::string ExplainOwners(std::uint32_t one, std::uint64_t round_of_one, std::uint32_t other,
                          std::uint64_t round_of_other);

}  // namespace tutti

#endif  // TUTTI_BASE_CALL_OWNER_H_
