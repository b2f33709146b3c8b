// What every store must do, as one parameterized suite: each store's test instantiates it.
#ifndef TUTTI_TESTS_STORE_STORE_CONFORMANCE_H_
#define TUTTI_TESTS_STORE_STORE_CONFORMANCE_H_

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "gtest/gtest.h"
#include "tutti/store.h"

namespace tutti {

// A table that ranks share; Join(rank) returns the store through which a rank of the job uses the table.
class StoreFixture {
 public:
  virtual ~StoreFixture() = default;
  virtual std::shared_ptr<Store> Join(Rank rank) = 0;
};

struct StoreKind {
  std::string name;
  std::function<std::unique_ptr<StoreFixture>()> make;
};

class StoreConformance : public testing::TestWithParam<StoreKind> {
 protected:
  std::unique_ptr<StoreFixture> fixture_ = GetParam().make();
};

inline void PrintTo(const StoreKind& kind, std::ostream* out) { *out << kind.name; }

inline std::string StoreKindName(const testing::TestParamInfo<StoreKind>& info) { return info.param.name; }

}  // namespace tutti

#endif  // TUTTI_TESTS_STORE_STORE_CONFORMANCE_H_
