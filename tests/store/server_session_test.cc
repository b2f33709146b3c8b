#include "store/server_session.h"

#include <deque>

#include "gtest/gtest.h"

namespace tutti {
namespace {

// A rank, and what the server has sent to it.
class Client {
 public:
  Client(ServerTables& tables, Rank rank)
      : session_(tables, [this](SessionBytes bytes) { sent_.push_back(std::move(bytes)); }) {
    const JobKey& job = tables.job();
    const std::string hello = Encode(ClientHello{.rank = rank, .size = job.size, .job = Sha256(job.job_id)});
    EXPECT_TRUE(session_.Receive(hello).ok());
    const HandshakeKeys keys = DeriveKeys(job.secret, hello, sent_[0].head.substr(0, kServerHelloBytes));
    EXPECT_TRUE(session_.Receive(View(keys.client_proof)).ok() && session_.authenticated());
    writer_.emplace(keys.client_to_server);
    reader_.emplace(keys.server_to_client);
    sent_.erase(sent_.begin());
  }

  void Ask(const StoreRequest& request) { EXPECT_TRUE(session_.Receive(writer_->Seal(Encode(request))).ok()); }
  const std::vector<SessionBytes>& sent() const { return sent_; }
  // The answers, as they come out of a connection.
  std::vector<StoreResponse> Answers() {
    std::vector<StoreResponse> answers;
    for (const SessionBytes& bytes : sent_) {
      reader_->Append(bytes.head);
      if (bytes.value != nullptr) reader_->Append(*bytes.value);
      answers.push_back(ParseResponse(reader_->Next().value().value()).value());
    }
    return answers;
  }

 private:
  std::vector<SessionBytes> sent_;
  ServerSession session_;
  std::optional<FrameWriter> writer_;
  std::optional<FrameReader> reader_;
};

// A copy for each rank of what an exchange hands out would need more memory than rank 0 has.
TEST(ServerSessionTest, ValuesAreKeptOnceHoweverManyRanksGetThem) {
  constexpr int kRanks = 50;
  const std::string value(1 << 20, 'v');
  ServerTables tables({JobSecret{}, "job", kRanks}, {});
  std::deque<Client> clients;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    clients.emplace_back(tables, rank);
    if (rank > 0) clients.back().Ask({.op = StoreOp::kGet, .wait = true, .id = 1, .key = "k"});
  }
  clients[0].Ask({.op = StoreOp::kSet, .id = 1, .key = "k", .value = value});
  clients[0].Ask({.op = StoreOp::kGet, .id = 2, .key = "k"});
  const std::string* const kept = clients[0].sent().back().value.get();
  ASSERT_NE(kept, nullptr);
  for (Client& client : clients) {
    EXPECT_EQ(client.sent().back().value.get(), kept);
    EXPECT_LT(client.sent().back().head.size(), 100u);
    EXPECT_TRUE(client.Answers().back().text == value);
  }
}

}  // namespace
}  // namespace tutti
