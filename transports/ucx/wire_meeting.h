// How the ranks of different nodes make the connections of their wires (wire.h, short_wire.h): each rank listens on its
// network interface until all have greeted it, and of two ranks the one with the higher number connects to the other,
// which answers. A connection that ends before the answer is made anew: a rank whose port strangers fill drops the
// oldest connections of which it does not know whose they are. The rank with the lower number knocks, which is to
// connect and to hang up at once: a network that loses what one of the two sends shows early, and not where a library
// waits for minutes until the system gives up. No child that is forked meanwhile keeps a connection.
#ifndef TUTTI_TRANSPORTS_UCX_WIRE_MEETING_H_
#define TUTTI_TRANSPORTS_UCX_WIRE_MEETING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fork.h"
#include "base/unique_fd.h"
#include "transports/ucx/address.h"
#include "transports/ucx/wires.h"
#include "tutti/dtype.h"

namespace tutti::ucx {

inline constexpr int kMaxWireConnections = 64;  // of the wire of two ranks, beside that of their short wire

// A rank on another node that is to be met.
struct WireMember {
  Rank rank = 0;
  std::string address;  // as its WireMeeting::address
  Nonce nonce = {};     // which proves to the member that whoever presents it knows the member's address
};

class WireMeeting {
 public:
  // Listens on the first address of `interface`, IPv4 before IPv6.
  static absl::StatusOr<WireMeeting> Open(const std::string& interface);

  // Where this rank listens, for its peers; empty where the interface has no IP address.
  const std::string& address() const { return address_; }

  // Begins to meet `members`, all ranks on other nodes, as rank `rank` of nonce `nonce`; makes `connections`
  // connections to each of those with a lower number. A member with a higher number makes as many as it likes, and must
  // listen until this rank has knocked (reached).
  absl::Status Begin(Rank rank, const Nonce& nonce, std::vector<WireMember> members, int connections);
  // Goes on without waiting; true once all have been met. Unavailable names a rank that cannot be reached,
  // ResourceExhausted the limit of the system to raise.
  absl::StatusOr<bool> Advance();
  // A descriptor that is readable when Advance has something to do, but for a connection that is to be made anew, which
  // a call of Advance some time later does.
  int fd() const { return epoll_.get(); }
  // Whether every member has been reached: no connection and no knock of this rank is still to come up.
  bool reached() const;
  // DeadlineExceeded, about the first member that has not been reached; not all have been.
  absl::Status Unanswered() const;
  // The first rank that has not been met, and DeadlineExceeded about it; not all have been.
  Rank missing() const;
  absl::Status Unmet() const;

  // The connections to the ranks that have been met since the last call.
  std::vector<WireSockets> TakeMet();
  // Ends the meeting: nobody listens any more. To be called once all members are known to have knocked.
  void Close() { *this = WireMeeting(); }

 private:
  // How a rank that connects introduces itself.
  struct Introduction {
    std::uint32_t magic = 0x32495454;  // "TTI2"
    Rank rank = 0;
    std::uint32_t index = 0;  // of this connection, among `count`
    std::uint32_t count = 0;
    Nonce nonce = {};  // the receiver's
  };
  // A connection that this rank is making: number `index` of a wire, or a knock.
  struct Call {
    std::size_t member;
    std::optional<std::uint32_t> index;
    UnsharedFd socket;        // none between the end of a connection and the next attempt
    bool introduced = false;  // and the answer is awaited
    int attempts = 1;
    std::int64_t next_ns = 0;  // of the next attempt
  };
  struct Stranger {
    UnsharedFd socket;
    std::array<char, sizeof(Introduction)> text;
    std::size_t read = 0;
  };

  absl::Status Dial(Call& call);
  // Goes on with a call without waiting; true once the call has done what it is for.
  absl::StatusOr<bool> GoOn(Call& call);
  // Introduces this rank over a connection that is up, or hangs up after a knock; true after a knock.
  absl::StatusOr<bool> Introduce(Call& call);
  // Hears the answer to the introduction; false while it has not come.
  absl::StatusOr<bool> HearAnswer(Call& call);
  // Has a connection made anew that the member has closed; false, since the call goes on.
  absl::StatusOr<bool> Repeat(Call& call);
  absl::Status Accept();
  // Reads what a stranger says; false while there is more to come.
  bool Hear(Stranger& stranger);
  void Admit(UnsharedFd socket, const Introduction& introduction);
  // Takes note of it if all connections to `member` have been made.
  void NoteIfMet(std::size_t member);
  absl::Status Await(int socket, std::uint32_t events);
  absl::Status Unreachable(std::size_t member, int error) const;
  std::string CannotReach(std::size_t member) const;

  UnsharedFd listener_;
  UniqueFd epoll_;
  std::string address_;
  Rank rank_ = 0;
  Nonce nonce_ = {};
  std::size_t connections_ = 0;  // to each member
  std::vector<WireMember> members_;
  std::vector<WireSockets> sockets_;  // beside members_; none while it is not known how many there will be
  std::vector<bool> is_met_;          // beside members_
  std::vector<std::size_t> untaken_;  // members that have been met since the last TakeMet
  std::size_t missing_ = 0;           // members that have not been met
  std::vector<Call> calls_;
  std::vector<Stranger> strangers_;
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_WIRE_MEETING_H_
