// Symbols: what memory holds during a symbolic run.
#ifndef TUTTI_PLAN_SYMBOLS_H_
#define TUTTI_PLAN_SYMBOLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "tutti/plan.h"

namespace tutti {

using SymbolId = std::uint32_t;

// One element: element `index` of `symbol`. Elements of a run have consecutive indices.
struct Value {
  SymbolId symbol = 0;
  std::int64_t index = 0;
  Value operator+(std::int64_t k) const { return {symbol, index + k}; }
  bool operator==(const Value&) const = default;
};

struct Symbol {
  enum class Kind : std::uint8_t {
    kNothing,  // uninitialised memory
    kInput,    // the input of `rank`
    kState,    // the state of `rank` before the run
    kReplica,  // the weights of `rank` before the run, which several ranks hold
    kFold,     // op over terms, left to right
    kDivide,   // terms[0] / divisor
    kScaled,   // terms[0] times the factor that `rank` gives with its call
    kRound,    // terms[0] rounded to dtype
    kCombine,  // terms times coefficients, added from left to right
    kEncoded,  // bytes of a message of `codec` that holds terms one after the other
    kDecoded,  // elements of the message terms[0].symbol
    kNative,   // op over terms, in an order that the native collective number `draw` chooses, then / divisor
  };
  struct Term {
    SymbolId symbol;
    std::int64_t index;  // in a message: the element's index; else added to the index in the whole
    std::int64_t count;  // in a message: elements; otherwise 0
  };

  Kind kind = Kind::kNothing;
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kF32;  // of what memory holds, rounded values, or the arithmetic
  Rank rank = 0;
  std::int32_t divisor = 1;
  std::uint32_t codec = 0;
  // The number of a message with stochastic rounding, which encodes equal elements differently each time, or of a
  // native collective, which may combine equal elements in another order each time; otherwise 0.
  std::int64_t draw = 0;
  std::vector<Term> terms = {};
  std::vector<Coefficient> coefficients = {};
  bool finite = false;  // for kCombine: results that are no finite numbers are 0
  // Rounded after arithmetic, somewhere inside: no further sum may be built on the symbol.
  bool rounded = false;
  // Whether every value of the symbol is a value of `exact_in`.
  bool exact = false;
  DType exact_in = DType::kF32;
};

// A table of all symbols of a run. Equal symbols have equal ids, so that comparing values compares two numbers.
// Computations that give equal bits by construction are one symbol: moving, exact widening, and reducing in several
// steps from left to right.
class Symbols {
 public:
  Symbols();

  const Symbol& operator[](SymbolId id) const { return symbols_[id]; }
  Value Nothing() const { return {}; }
  Value Input(Rank rank, DType dtype, std::int64_t index);
  Value State(Rank rank, DType dtype, std::int64_t index);
  Value Replica(Rank of, DType dtype, std::int64_t index);
  // The results of computing in `dtype`: a sum of the same values in another type is another value.
  Value Fold(ReduceOp op, DType dtype, absl::Span<const Value> values);
  // The elements of all ranks, of type `dtype`, combined by the native collective with this number, the same on all of
  // its ranks. 16-bit sums and products are rounded one does not know how often, so nothing more may be added to them.
  Value Native(ReduceOp op, std::int32_t divisor, DType dtype, absl::Span<const Value> values, std::int64_t number);
  Value Combine(DType dtype, absl::Span<const Value> values, absl::Span<const Coefficient> coefficients, bool finite);
  Value Divide(const Value& value, DType dtype, std::int32_t divisor);
  // `value` times the factor of the call of `rank`.
  Value TimesFactor(const Value& value, DType dtype, Rank rank);
  // `value` of type `from` stored as `to`.
  Value Convert(const Value& value, DType from, DType to);
  // The first byte of the message that step `step` of the world encodes.
  Value Encoded(const CodecChoice& codec, std::vector<Symbol::Term> elements, std::int64_t step);
  // The first element of the message whose bytes are `encoded`.
  Value Decoded(SymbolId encoded);

  bool IsMessageOf(SymbolId id, const CodecChoice& codec, std::int64_t count) const;
  // Describes a value: "sum(in@0[3], in@1[3]) / 2".
  std::string Describe(const Value& value) const;

 private:
  SymbolId Intern(Symbol symbol);
  Value Unknown(Symbol::Kind kind, Rank rank, DType dtype, std::int64_t index);

  std::vector<Symbol> symbols_;
  absl::flat_hash_map<std::vector<std::int64_t>, SymbolId> ids_;
  std::vector<CodecChoice> codecs_;
};

}  // namespace tutti

#endif  // TUTTI_PLAN_SYMBOLS_H_
