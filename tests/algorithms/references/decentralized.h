#ifndef TUTTI_TESTS_ALGORITHMS_REFERENCES_DECENTRALIZED_H_
#define TUTTI_TESTS_ALGORITHMS_REFERENCES_DECENTRALIZED_H_

#include <cstdint>
#include <set>
#include <string>

#include "tests/algorithms/references/gradient_allreduce.h"

namespace tutti {

inline int Modulo(int a, int n) { return (a % n + n) % n; }

// 64 bits that look random, of a counter (Steele, Lea and Flood, "Fast splittable pseudorandom number generators").
inline std::uint64_t SplitMix(std::uint64_t counter) {
  std::uint64_t z = counter + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The ranks whose weights `rank` averages in exchange `c` (from 0), itself included.
inline std::set<int> AveragedBy(const std::string& selection, int n, int c, std::uint64_t seed, int rank) {
  std::set<int> ranks = {rank};
  if (selection == "all") {
    for (int other = 0; other < n; ++other) ranks.insert(other);
  } else if (selection == "ring") {
    ranks.insert({Modulo(rank - 1, n), Modulo(rank + 1, n)});
  } else if (selection == "exponential") {
    for (int distance = 1; distance < n; distance *= 2) ranks.insert((rank + distance) % n);
  } else if (selection == "one_peer_exponential") {
    std::vector<int> distances;
    for (int distance = 1; distance < n; distance *= 2) distances.push_back(distance);
    if (n > 1) ranks.insert((rank + distances[c % distances.size()]) % n);
  } else if (selection == "torus") {
    int rows = 1;
    while ((rows + 1) * (rows + 1) <= n) ++rows;
    while (n % rows != 0) --rows;
    const int columns = n / rows;
    const int row = rank / columns;
    const int column = rank % columns;
    for (const int step : {-1, 1}) {
      ranks.insert(Modulo(row + step, rows) * columns + column);
      ranks.insert(row * columns + Modulo(column + step, columns));
    }
  } else if (selection == "shift_one") {
    // An odd world has one place without a rank: the rank that would meet it sits out.
    const int h = (n + 1) / 2;
    const int peer = rank < h ? Modulo(c + rank, h) + h : Modulo(rank - h - c, h);
    if (peer < n) ranks.insert(peer);
  } else if (selection == "random_pair") {
    // Round c of a tournament on a circle: ranks whose sum is the round's number, modulo the circle, meet. The circle
    // is odd; in an even world the last rank stands in its middle and meets the rank that would meet itself.
    const int circle = n % 2 == 0 ? n - 1 : n;
    const int round = circle < 1 ? 0
                                 : static_cast<int>(SplitMix(SplitMix(seed) ^ static_cast<std::uint64_t>(c)) %
                                                    static_cast<std::uint64_t>(circle));
    for (int a = 0; a < circle; ++a) {
      int b = Modulo(round - a, circle);
      if (b == a && n % 2 == 0) b = n - 1;
      if (rank == a) ranks.insert(b);
      if (rank == b) ranks.insert(a);
    }
  } else {
    ADD_FAILURE() << "no reference of " << selection;
  }
  return ranks;
}

// In steps where step mod communication_interval is 0, the weights are mixed as they were when forward began; then, in
// every step, the optimizer applies the gradient.
class DecentralizedReference : public Reference {
 public:
  DecentralizedReference(std::string selection, int interval, std::uint64_t seed = 0)
      : selection_(std::move(selection)), interval_(interval), seed_(seed) {}

  void WeightsBeforeOptimizer(int step, Ranks& weights) override {
    if (step % interval_ != 0) return;
    const Ranks before = weights;
    const int size = static_cast<int>(weights.size());
    for (int rank = 0; rank < size; ++rank) {
      Ranks averaged;
      for (const int other : AveragedBy(selection_, size, step / interval_, seed_, rank)) {
        averaged.push_back(before[other]);
      }
      weights[rank] = SumInOrder(averaged, static_cast<int>(averaged.size()));
    }
  }

 private:
  const std::string selection_;
  const int interval_;
  const std::uint64_t seed_;
};

// A mixing matrix of the user's own: x_r ← Σ matrix[r][s]·x_s.
class MatrixReference : public Reference {
 public:
  explicit MatrixReference(std::vector<std::vector<double>> matrix) : matrix_(std::move(matrix)) {}

  void WeightsBeforeOptimizer(int /*step*/, Ranks& weights) override {
    const Ranks before = weights;
    for (std::size_t r = 0; r < weights.size(); ++r) {
      for (std::size_t i = 0; i < weights[r].size(); ++i) {
        float sum = before[0][i] * static_cast<float>(matrix_[r][0]);
        for (std::size_t s = 1; s < weights.size(); ++s) sum += before[s][i] * static_cast<float>(matrix_[r][s]);
        weights[r][i] = sum;
      }
    }
  }

 private:
  const std::vector<std::vector<double>> matrix_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_ALGORITHMS_REFERENCES_DECENTRALIZED_H_
