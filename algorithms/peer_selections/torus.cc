// A torus of rows and columns, as square as the number of ranks allows: every rank mixes with its neighbours, in equal
// shares: of a fifth, or more where a row or column has fewer than three ranks. A prime number of ranks makes one row,
// which is a ring.
#include "algorithms/peer_selections/circulant.h"

namespace tutti {
namespace {

int Rounds(int /*size*/) { return 1; }

// The largest divisor of `size` up to its square root.
int RowsOf(int size) {
  int rows = 1;
  for (int divisor = 2; divisor * divisor <= size; ++divisor) {
    if (size % divisor == 0) rows = divisor;
  }
  return rows;
}

// The neighbours of `place` along a line of `length` places that is closed to a ring; no place is named twice.
std::vector<int> Neighbours(int place, int length) {
  if (length == 1) return {};
  if (length == 2) return {1 - place};
  return {(place + length - 1) % length, (place + 1) % length};
}

std::vector<PeerWeight> Mix(int size, int /*round*/, Rank rank) {
  const int rows = RowsOf(size);
  const int columns = size / rows;
  const int row = rank / columns;
  const int column = rank % columns;
  std::vector<Rank> ranks = {rank};
  for (const int other : Neighbours(row, rows)) ranks.push_back(other * columns + column);
  for (const int other : Neighbours(column, columns)) ranks.push_back(row * columns + other);
  return EqualParts(std::move(ranks));
}

}  // namespace
}  // namespace tutti

TUTTI_PEER_SELECTION(torus) = {
    .name = "torus",
    .summary = "each rank and its neighbours (up to four) on a torus of rows and columns, in equal parts",
    .rounds = tutti::Rounds,
    .mix = tutti::Mix,
};
