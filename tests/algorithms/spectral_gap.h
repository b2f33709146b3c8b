// How fast mixing matrices bring ranks together.
#ifndef TUTTI_TESTS_ALGORITHMS_SPECTRAL_GAP_H_
#define TUTTI_TESTS_ALGORITHMS_SPECTRAL_GAP_H_

#include <cmath>
#include <cstddef>
#include <vector>

#include "tutti/peer_selection.h"

namespace tutti {

using Matrix = std::vector<std::vector<double>>;
using Vector = std::vector<double>;

// The mixing matrix of one round, by rows: weights[rank][from].
inline Matrix MixingMatrix(const PeerSelection& selection, int size, int round) {
  Matrix matrix(size, Vector(size, 0));
  for (Rank rank = 0; rank < size; ++rank) {
    for (const PeerWeight& part : selection.mix(size, round, rank)) matrix[rank][part.rank] = part.weight;
  }
  return matrix;
}

inline Matrix Times(const Matrix& a, const Matrix& b) {
  Matrix product(a.size(), Vector(a.size(), 0));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < a.size(); ++k) {
      for (std::size_t j = 0; j < a.size(); ++j) product[i][j] += a[i][k] * b[k][j];
    }
  }
  return product;
}

inline Matrix Transposed(const Matrix& a) {
  Matrix transposed = a;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a.size(); ++j) transposed[j][i] = a[i][j];
  }
  return transposed;
}

inline Vector Times(const Matrix& a, const Vector& x) {
  Vector product(x.size(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a.size(); ++j) product[i] += a[i][j] * x[j];
  }
  return product;
}

// Distance from consensus: the length of the vector of differences between the entries and their mean.
inline double Disagreement(const Vector& x) {
  double mean = 0;
  for (const double value : x) mean += value / static_cast<double>(x.size());
  double squares = 0;
  for (const double value : x) squares += (value - mean) * (value - mean);
  return std::sqrt(squares);
}

// The turns of a selection: one turn with all rounds one after the other or, for a selection that draws lots, a turn
// for every round that may be drawn.
inline std::vector<Matrix> TurnsOf(const PeerSelection& selection, int size) {
  std::vector<Matrix> turns;
  for (int round = 0; round < selection.rounds(size); ++round) {
    Matrix mixing = MixingMatrix(selection, size, round);
    if (selection.random || turns.empty()) {
      turns.push_back(std::move(mixing));
    } else {
      turns[0] = Times(mixing, turns[0]);
    }
  }
  return turns;
}

struct Contraction {
  double rate = 0;  // what remains of the slowest disagreement after one turn (in root mean square over the lots)
  Vector slowest;   // the slowest disagreement, as a vector of length 1
};

// The second largest singular value of the turn, by power iteration on vectors whose mean is 0: the largest value, 1,
// belongs to vectors on whose entries all ranks agree.
inline Contraction SlowestContraction(const std::vector<Matrix>& turns) {
  const std::size_t size = turns[0].size();
  Matrix squared(size, Vector(size, 0));
  for (const Matrix& turn : turns) {
    const Matrix square = Times(Transposed(turn), turn);
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < size; ++j) squared[i][j] += square[i][j] / static_cast<double>(turns.size());
    }
  }
  Contraction contraction{.rate = 0, .slowest = Vector(size)};
  Vector& x = contraction.slowest;
  for (std::size_t i = 0; i < size; ++i) x[i] = std::sin(static_cast<double>(i * i + 1));
  if (size == 1) return contraction;
  constexpr int kIterations = 4000;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    double mean = 0;
    for (const double value : x) mean += value / static_cast<double>(size);
    for (double& value : x) value -= mean;
    const double length = Disagreement(x);
    for (double& value : x) value /= length;
    const Vector next = Times(squared, x);
    double quotient = 0;
    for (std::size_t i = 0; i < size; ++i) quotient += x[i] * next[i];
    contraction.rate = quotient < 1e-14 ? 0 : std::sqrt(quotient);
    if (contraction.rate == 0) return contraction;  // all agree after one turn, but for rounding
    if (iteration + 1 < kIterations) x = next;
  }
  return contraction;
}

}  // namespace tutti

#endif  // TUTTI_TESTS_ALGORITHMS_SPECTRAL_GAP_H_
