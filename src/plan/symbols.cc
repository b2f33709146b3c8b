#include "plan/symbols.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tutti {
namespace {

using Kind = Symbol::Kind;

// Whether every value of `from` is a value of `to`.
bool Widens(DType from, DType to) {
  const bool sixteen = from == DType::kF16 || from == DType::kBF16;
  return from == to || (sixteen && to == DType::kF32) || (to == DType::kF64 && (sixteen || from == DType::kF32));
}

bool IsUnknown(Kind kind) { return kind == Kind::kInput || kind == Kind::kState || kind == Kind::kReplica; }

}  // namespace

Symbols::Symbols() { symbols_.emplace_back(); }

SymbolId Symbols::Intern(Symbol symbol) {
  std::vector<std::int64_t> key = {static_cast<int>(symbol.kind),
                                   static_cast<int>(symbol.op),
                                   static_cast<int>(symbol.dtype),
                                   symbol.rank,
                                   symbol.divisor,
                                   symbol.codec,
                                   symbol.draw,
                                   symbol.finite};
  for (const Symbol::Term& term : symbol.terms) {
    key.insert(key.end(), {static_cast<std::int64_t>(term.symbol), term.index, term.count});
  }
  for (const Coefficient& c : symbol.coefficients) {
    key.insert(key.end(), {std::bit_cast<std::int64_t>(c.factor), std::bit_cast<std::int64_t>(c.divisor)});
  }
  const auto [it, added] = ids_.try_emplace(std::move(key), static_cast<SymbolId>(symbols_.size()));
  if (added) symbols_.push_back(std::move(symbol));
  return it->second;
}

Value Symbols::Unknown(Kind kind, Rank rank, DType dtype, std::int64_t index) {
  Symbol symbol{.kind = kind, .dtype = dtype, .rank = rank};
  symbol.exact = true;
  symbol.exact_in = dtype;
  return {Intern(std::move(symbol)), index};
}

Value Symbols::Input(Rank rank, DType dtype, std::int64_t index) { return Unknown(Kind::kInput, rank, dtype, index); }

Value Symbols::State(Rank rank, DType dtype, std::int64_t index) { return Unknown(Kind::kState, rank, dtype, index); }

Value Symbols::Replica(Rank of, DType dtype, std::int64_t index) { return Unknown(Kind::kReplica, of, dtype, index); }

Value Symbols::Fold(ReduceOp op, DType dtype, absl::Span<const Value> values) {
  if (values.size() == 1) return values[0];
  const bool selects = op == ReduceOp::kMin || op == ReduceOp::kMax;
  Symbol symbol{.kind = Kind::kFold, .op = op};
  if (!selects) symbol.dtype = dtype;
  const std::int64_t index = values[0].index;
  // A fold of a fold is one fold: (a + b) + c is computed like a + b + c.
  const Symbol& head = symbols_[values[0].symbol];
  if (head.kind == Kind::kFold && head.op == op && head.dtype == symbol.dtype) {
    symbol.terms = head.terms;
  } else {
    symbol.terms.push_back({values[0].symbol, 0, 0});
  }
  for (const Value& value : values.subspan(1)) symbol.terms.push_back({value.symbol, value.index - index, 0});
  symbol.exact_in = symbols_[values[0].symbol].exact_in;
  symbol.exact = selects;
  for (const Value& value : values) {
    const Symbol& s = symbols_[value.symbol];
    symbol.rounded = symbol.rounded || s.rounded;
    symbol.exact = symbol.exact && s.exact && s.exact_in == symbol.exact_in;
  }
  return {Intern(std::move(symbol)), index};
}

Value Symbols::Native(ReduceOp op, std::int32_t divisor, DType dtype, absl::Span<const Value> values,
                      std::int64_t number) {
  Symbol symbol{.kind = Kind::kNative, .op = op, .dtype = dtype, .divisor = divisor, .draw = number};
  const bool selects = op == ReduceOp::kMin || op == ReduceOp::kMax;
  symbol.rounded = AccumulatorOf(dtype) != dtype && !selects;
  symbol.exact = true;
  symbol.exact_in = dtype;
  const std::int64_t index = values[0].index;
  for (const Value& value : values) {
    symbol.terms.push_back({value.symbol, value.index - index, 0});
    symbol.rounded = symbol.rounded || symbols_[value.symbol].rounded;
  }
  return {Intern(std::move(symbol)), index};
}

Value Symbols::Combine(DType dtype, absl::Span<const Value> values, absl::Span<const Coefficient> coefficients,
                       bool finite) {
  const std::int64_t index = values[0].index;
  Symbol symbol{.kind = Kind::kCombine, .dtype = dtype, .finite = finite};
  symbol.coefficients.assign(coefficients.begin(), coefficients.end());
  for (const Value& value : values) {
    symbol.terms.push_back({value.symbol, value.index - index, 0});
    symbol.rounded = symbol.rounded || symbols_[value.symbol].rounded;
  }
  return {Intern(std::move(symbol)), index};
}

Value Symbols::Divide(const Value& value, DType dtype, std::int32_t divisor) {
  if (divisor == 1) return value;
  Symbol symbol{.kind = Kind::kDivide, .dtype = dtype, .divisor = divisor, .terms = {{value.symbol, 0, 0}}};
  symbol.rounded = symbols_[value.symbol].rounded;
  return {Intern(std::move(symbol)), value.index};
}

Value Symbols::TimesFactor(const Value& value, DType dtype, Rank rank) {
  Symbol symbol{.kind = Kind::kScaled, .dtype = dtype, .rank = rank, .terms = {{value.symbol, 0, 0}}};
  symbol.rounded = symbols_[value.symbol].rounded;
  return {Intern(std::move(symbol)), value.index};
}

Value Symbols::Convert(const Value& value, DType from, DType to) {
  const Symbol& whole = symbols_[value.symbol];
  if (Widens(from, to) || (whole.exact && whole.exact_in == to)) return value;
  Symbol symbol{.kind = Kind::kRound, .dtype = to, .terms = {{value.symbol, 0, 0}}};
  // A sum may be built on inputs, scaled or not, that were cast to a narrower type, but not on sums that were cast.
  symbol.rounded = whole.rounded || !(IsUnknown(whole.kind) || whole.kind == Kind::kScaled);
  symbol.exact = true;
  symbol.exact_in = to;
  return {Intern(std::move(symbol)), value.index};
}

Value Symbols::Encoded(const CodecChoice& codec, std::vector<Symbol::Term> elements, std::int64_t step) {
  auto found = std::find(codecs_.begin(), codecs_.end(), codec);
  if (found == codecs_.end()) found = codecs_.insert(found, codec);
  Symbol symbol{.kind = Kind::kEncoded, .codec = static_cast<std::uint32_t>(found - codecs_.begin())};
  if (codec.options.rounding == Rounding::kStochastic) symbol.draw = 1 + step;
  // Consecutive elements become one term, into however many pieces memory was cut.
  for (const Symbol::Term& term : elements) {
    Symbol::Term* last = symbol.terms.empty() ? nullptr : &symbol.terms.back();
    if (last != nullptr && last->symbol == term.symbol && last->index + last->count == term.index) {
      last->count += term.count;
    } else {
      symbol.terms.push_back(term);
    }
    symbol.rounded = symbol.rounded || symbols_[term.symbol].rounded;
  }
  return {Intern(std::move(symbol)), 0};
}

Value Symbols::Decoded(SymbolId encoded) {
  Symbol symbol{.kind = Kind::kDecoded, .terms = {{encoded, 0, 0}}};
  symbol.rounded = symbols_[encoded].rounded;
  return {Intern(std::move(symbol)), 0};
}

bool Symbols::IsMessageOf(SymbolId id, const CodecChoice& codec, std::int64_t count) const {
  const Symbol& symbol = symbols_[id];
  if (symbol.kind != Kind::kEncoded || !(codecs_[symbol.codec] == codec)) return false;
  for (const Symbol::Term& term : symbol.terms) count -= term.count;
  return count == 0;
}

std::string Symbols::Describe(const Value& value) const {
  constexpr std::size_t kLongest = 300;
  const Symbol& symbol = symbols_[value.symbol];
  auto term = [&](std::size_t i) { return Describe({symbol.terms[i].symbol, symbol.terms[i].index + value.index}); };
  switch (symbol.kind) {
    case Kind::kNothing:
      return "nothing";
    case Kind::kInput:
      return absl::StrCat("in@", symbol.rank, "[", value.index, "]");
    case Kind::kState:
      return absl::StrCat("state@", symbol.rank, "[", value.index, "]");
    case Kind::kReplica:
      return absl::StrCat("replica of ", symbol.rank, "[", value.index, "]");
    case Kind::kFold:
    case Kind::kNative: {
      const bool native = symbol.kind == Kind::kNative;
      std::string text = absl::StrCat(native ? "native " : "", Name(symbol.op), "(");
      for (std::size_t i = 0; i < symbol.terms.size() && text.size() < kLongest; ++i) {
        absl::StrAppend(&text, i == 0 ? "" : ", ", term(i));
      }
      absl::StrAppend(&text, text.size() < kLongest ? ")" : ", …)");
      return symbol.divisor == 1 ? text : absl::StrCat(text, " / ", symbol.divisor);
    }
    case Kind::kDivide:
      return absl::StrCat(term(0), " / ", symbol.divisor);
    case Kind::kScaled:
      return absl::StrCat(term(0), " · factor@", symbol.rank);
    case Kind::kCombine: {
      std::string text = symbol.finite ? "finite(" : "combine(";
      for (std::size_t i = 0; i < symbol.terms.size() && text.size() < kLongest; ++i) {
        absl::StrAppend(&text, i == 0 ? "" : ", ", symbol.coefficients[i].value(), " · ", term(i));
      }
      return text.size() < kLongest ? text + ")" : text + ", …)";
    }
    case Kind::kRound:
      return absl::StrCat(Name(symbol.dtype), "(", term(0), ")");
    case Kind::kEncoded:
      return absl::StrCat(codecs_[symbol.codec].codec->name, " byte ", value.index);
    case Kind::kDecoded: {
      std::int64_t at = value.index;
      for (const Symbol::Term& part : symbols_[symbol.terms[0].symbol].terms) {
        if (at < part.count) return absl::StrCat("decoded(", Describe({part.symbol, part.index + at}), ")");
        at -= part.count;
      }
      return "decoded beyond its message";
    }
  }
  return "";
}

}  // namespace tutti
