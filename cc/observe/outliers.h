// SizeHistory: the sizes of a rank's gradients in the last steps, and whether one gradient is out
// of all proportion now. Pure.
//
// A fault of a machine, unlike a strange batch or a too high learning rate, changes the gradients
// of one layer only, on one rank only. So a rank suspects itself if the gradients of one layer are
// far above those of the last steps, and those of no other layer nearly as much. The suspicion is
// believed if no other rank finds anything like it in the same step (flow/finite_vote.h).
//
// Gradients have long tails, and some steps are strange. So a gradient is compared with the
// kRank-th largest of the last steps, not with their mean or the largest.
//
// A strange batch can also make a single gradient large: that of a kernel, which has the layer's
// input as a factor. So a layer is suspected only if all of its gradients are far above, or if one
// value makes up nearly all of the large one. The input of the first layer is the batch itself: one
// value of it may be large, and a kernel without a bias shows that alone. So there several
// gradients must be far above.
//
// A value that is above all earlier gradients by many powers of two is a fault even if other
// gradients are unusual, too. A model that has learned everything has hardly any gradients, and a
// batch from time to time with gradients as far above these.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/flow/finite_vote.h"

namespace tfhvd {

class SizeHistory {
 public:
  static constexpr int kFewest = 8;   // steps from which a gradient must be known
  static constexpr int kPeriod = 16;  // steps; the memory covers one to two periods
  static constexpr int kRank = 2;
  // All of these are powers of two: by how much an unusual gradient is above the others, and one
  // that is far above; and how far below the others of its step a norm has no meaning: gradients
  // that are zero except for rounding have any size.
  static constexpr float kUnusual = 1.0f;
  static constexpr float kFar = 4.5f;
  // By how much each other gradient of a layer must be above its usual size if the layer is
  // suspected as a whole. In a strange batch, the kernel of a last layer can be 48 times as
  // large as usual, its bias 8 times, and no other layer's gradients much, if the layers below are
  // saturated.
  static constexpr float kAlsoFar = 3.5f;
  static constexpr float kNegligible = -10.0f;
  // By how little a norm exceeds the largest value if that value makes up nearly all of it.
  static constexpr float kOneValue = 0.25f;
  // How far above all earlier gradients a value is absurd, and the size reported for it: above
  // unknown ones.
  static constexpr float kAbsurd = 16.0f;
  static constexpr float kCertain = 2 * kAlone * kUnknown;

  // Returns a rank's opinion on its gradients, by their numbers; gradients without values do not
  // count.
  Suspicion Judge(const std::vector<GradientSize>& sizes) const;

  // Returns by how many powers of two a gradient's norm, or its largest value if that is more, is
  // above its usual size; if that is unknown, above all gradients so far. REQUIRES: there are
  // gradients.
  float Above(size_t number, const GradientSize& size) const;

  // Adds the gradients of a step to the history.
  void Add(const std::vector<GradientSize>& sizes);

 private:
  // The largest sizes of a period, in no order, and the least of these.
  class Largest {
   public:
    Largest() { sizes_.fill(kNoSize); }
    void Add(float size);
    float least() const { return sizes_[at_least_]; }

   private:
    std::array<float, kRank> sizes_;
    size_t at_least_ = 0;
  };

  // The memory of one gradient, in this period and in the one before.
  struct Known {
    int steps = 0;
    bool whole = true;  // whether all of its values were measured
    Largest norm[2];
    Largest largest[2];

    // The usual norm, and the usual largest value; kNoSize if the gradient was zero recently.
    float usual_norm() const { return std::max(norm[0].least(), norm[1].least()); }
    float usual_largest() const { return std::max(largest[0].least(), largest[1].least()); }
  };

  bool IsKnown(size_t number, const GradientSize& size) const;
  bool IsAbsurd(const GradientSize& size) const;
  bool LooksLikeAFault(const std::vector<GradientSize>& sizes, size_t suspect, float above) const;

  std::vector<Known> known_;  // by number
  float ever_ = kNoSize;      // the largest value of any gradient
  int64_t steps_ = 0;
};

}  // namespace tfhvd
