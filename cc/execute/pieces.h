// What a plan's pieces are, looked up in the list of agreed entries that the plan was made from.
#pragma once

#include <algorithm>
#include <vector>

#include "cc/flow/plan.h"

namespace tfhvd {

inline const void* InputOf(const Piece& piece, const std::vector<Agreed>& agreed) {
  return agreed[piece.agreed].entry.inputs[piece.tensor];
}

inline void* OutputOf(const Piece& piece, const std::vector<Agreed>& agreed) {
  return agreed[piece.agreed].entry.outputs[piece.tensor];
}

inline bool IsPlaceholder(const Piece& piece, const std::vector<Agreed>& agreed) {
  return agreed[piece.agreed].entry.placeholder;
}

inline const TensorSpec& SpecOf(const Piece& piece, const std::vector<Agreed>& agreed) {
  return agreed[piece.agreed].entry.request->tensors[piece.tensor];
}

// Whether this rank has all of the plan's tensors.
inline bool HasAll(const Plan& plan, const std::vector<Agreed>& agreed) {
  return std::none_of(plan.pieces.begin(), plan.pieces.end(),
                      [&agreed](const Piece& piece) { return IsPlaceholder(piece, agreed); });
}

// Whether the plan's tensor lies in memory that the call can work on.
inline bool InPlace(const Plan& plan, const std::vector<Agreed>& agreed) {
  return plan.pieces.size() == 1 && HasAll(plan, agreed);
}

// What this rank's tensors are multiplied by before they are added up, where weights differ: 0
// to 1. Without weights 1.
inline double ShareOf(const std::vector<int64_t>& weights, int rank) {
  if (weights.empty()) return 1.0;
  double sum = 0.0;
  for (int64_t w : weights) sum += static_cast<double>(w);
  return sum > 0.0 ? static_cast<double>(weights[static_cast<size_t>(rank)]) / sum : 0.0;
}

inline std::vector<int64_t> Times(const std::vector<int64_t>& numbers, int64_t factor) {
  std::vector<int64_t> products;
  for (int64_t n : numbers) products.push_back(n * factor);
  return products;
}

}  // namespace tfhvd
