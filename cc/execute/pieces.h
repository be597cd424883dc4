// Accessors of a plan's pieces, in the list of agreed entries that the plan was made from.
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

// Returns whether this rank has all of the plan's tensors.
inline bool HasAll(const Plan& plan, const std::vector<Agreed>& agreed) {
  return std::none_of(plan.pieces.begin(), plan.pieces.end(),
                      [&agreed](const Piece& piece) { return IsPlaceholder(piece, agreed); });
}

// Returns whether the call can work on the plan's tensor in its own memory.
inline bool InPlace(const Plan& plan, const std::vector<Agreed>& agreed) {
  return plan.pieces.size() == 1 && HasAll(plan, agreed);
}

// Returns the factor, 0 to 1, that this rank's tensors are multiplied by before the ranks' tensors
// are added, by the weights; 1 without weights.
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
