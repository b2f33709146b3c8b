// A client of the TCP store that says byte for byte what a test wants it to say.
#ifndef TUTTI_TESTS_STORE_RAW_STORE_CLIENT_H_
#define TUTTI_TESTS_STORE_RAW_STORE_CLIENT_H_

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "store/frame.h"
#include "store/handshake.h"
#include "store/message.h"
#include "store/socket.h"

namespace tutti {

class RawStoreClient {
 public:
  explicit RawStoreClient(const std::string& address) : fd_(ConnectTcp(address, EndNanos()).value()) {}

  absl::Status Send(absl::string_view bytes) { return SendAll(fd_.get(), bytes, EndNanos()); }
  std::string Receive(std::size_t bytes) { return ReceiveExactly(fd_.get(), bytes, EndNanos()).value(); }

  // True once the server has closed; what it still sent is dropped.
  bool IsClosed() {
    while (true) {
      absl::StatusOr<std::string> bytes = ReceiveSome(fd_.get(), 64 << 10, EndNanos());
      if (!bytes.ok()) return absl::IsUnavailable(bytes.status());
    }
  }

  static std::string Hello(const JobKey& job, Rank rank) {
    ClientHello hello{
        .rank = rank, .size = job.size, .job = Sha256(job.job_id), .process = Random(), .nonce = Random()};
    return Encode(hello);
  }

  // Sends `hello` and answers the challenge; returns the resulting keys.
  HandshakeKeys Join(const JobKey& job, const std::string& hello) {
    EXPECT_TRUE(Send(hello).ok());
    return Prove(job, hello);
  }
  // Answers the challenge to `hello`, which has been sent.
  HandshakeKeys Prove(const JobKey& job, const std::string& hello) {
    const std::string reply = Receive(kServerHelloBytes + kProofBytes);
    const HandshakeKeys keys = DeriveKeys(job.secret, hello, reply.substr(0, kServerHelloBytes));
    EXPECT_EQ(reply.substr(kServerHelloBytes), View(keys.server_proof));
    EXPECT_TRUE(Send(View(keys.client_proof)).ok());
    reader_.emplace(keys.server_to_client);
    welcome_ = ReceiveResponse();
    return keys;
  }
  HandshakeKeys Join(const JobKey& job, Rank rank) {
    const HandshakeKeys keys = Join(job, Hello(job, rank));
    EXPECT_EQ(welcome_.code, absl::StatusCode::kOk) << welcome_.text;
    return keys;
  }

  const StoreResponse& welcome() const { return welcome_; }

  StoreResponse ReceiveResponse() {
    while (true) {
      absl::StatusOr<std::optional<std::string>> body = reader_->Next();
      if (body.ok() && body->has_value()) return ParseResponse(**body).value();
      reader_->Append(ReceiveSome(fd_.get(), 4096, EndNanos()).value());
    }
  }

 private:
  static std::int64_t EndNanos() { return NanosIn(absl::Seconds(60)); }
  static Nonce Random() {
    Nonce nonce;
    FillRandom(absl::MakeSpan(nonce));
    return nonce;
  }

  UnsharedFd fd_;
  std::optional<FrameReader> reader_;
  StoreResponse welcome_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_STORE_RAW_STORE_CLIENT_H_
