// The stores that the conformance suite runs over.
#ifndef TUTTI_TESTS_STORE_STORE_FIXTURES_H_
#define TUTTI_TESTS_STORE_STORE_FIXTURES_H_

#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "tests/store/store_conformance.h"
#include "tests/store/temporary_directory.h"

namespace tutti {

class MemoryStoreFixture final : public StoreFixture {
 public:
  std::shared_ptr<Store> Join(Rank) override { return store_; }

 private:
  std::shared_ptr<Store> store_ = MakeMemoryStore();
};

class PrefixStoreFixture final : public StoreFixture {
 public:
  PrefixStoreFixture() {
    // Another prefix store with equal keys, which this store must not show.
    auto other = MakePrefixStore(base_, "other/");
    for (const char* key : {"count", "k", "a", "b", "late", "address/7"})
      EXPECT_TRUE(other->Set(key, "neighbour", absl::Now() + absl::Seconds(60)).ok());
  }
  std::shared_ptr<Store> Join(Rank) override { return MakePrefixStore(base_, "x/"); }

 private:
  std::shared_ptr<Store> base_ = MakeMemoryStore();
};

class FileStoreFixture final : public StoreFixture {
 public:
  std::shared_ptr<Store> Join(Rank rank) override { return MakeFileStore(directory_.path(), rank).value(); }

 private:
  TemporaryDirectory directory_;
};

class TcpStoreFixture final : public StoreFixture {
 public:
  std::shared_ptr<Store> Join(Rank rank) override {
    return ConnectTcpStore(server_->address(), job_, rank, absl::Now() + absl::Seconds(60)).value();
  }

 private:
  const JobKey job_{RandomJobSecret(), "conformance", 4};
  std::unique_ptr<TcpStoreServer> server_ = TcpStoreServer::Start(job_).value();
};

template <typename Fixture>
StoreKind KindOf(const char* name) {
  return {name, [] { return std::make_unique<Fixture>(); }};
}

inline std::vector<StoreKind> AllStoreKinds() {
  return {KindOf<MemoryStoreFixture>("Memory"), KindOf<PrefixStoreFixture>("Prefix"), KindOf<FileStoreFixture>("File"),
          KindOf<TcpStoreFixture>("Tcp")};
}

}  // namespace tutti

#endif  // TUTTI_TESTS_STORE_STORE_FIXTURES_H_
