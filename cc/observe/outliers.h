// SizeHistory: how large the gradients of a rank have been, and whether one of them is out of all
// proportion now. Pure.
//
// A fault of a machine, unlike a strange batch or a learning rate that was too high, changes the
// gradients of one layer alone, on one rank alone. So a rank suspects itself where the gradients of
// one layer are far above those of the last steps, and those of no other layer are nearly as much;
// and it is believed where no other rank finds anything like it in the same step
// (flow/finite_vote.h).
//
// Gradients have long tails, and some steps are strange: so a gradient is held against the
// kRank-th largest of the last steps, and not against their mean, nor against the largest.
//
// A strange batch can make one gradient large alone, too: that of a kernel, which has the layer's
// input as a factor. So a layer is suspected only if all of its gradients are far above, or if one
// value is nearly all of the large one. The first layer has the batch itself as its input, in which
// one value may be large, or which a kernel without a bias shows alone: there, several gradients
// must be far above.
//
// One value that is above all gradients there have ever been by many powers of two is a fault
// whatever else is unusual: a model that has learned all has hardly any gradients, and at times a
// batch with gradients that are as far above these.
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
  static constexpr int kFewest = 8;   // steps that a gradient must be known from
  static constexpr int kPeriod = 16;  // steps; what is remembered is of one to two periods
  static constexpr int kRank = 2;
  // All of these are powers of two. By how much a gradient is above the others to be unusual, and
  // to be far above; and how far below the others of its step a norm means nothing: gradients that
  // are zero but for rounding have any size.
  static constexpr float kUnusual = 1.0f;
  static constexpr float kFar = 4.5f;
  // By how much each other gradient of a layer must be above what it is held against if the layer
  // is suspected as a whole. In a strange batch, the kernel of a last layer can be 48 times as
  // large as usual, its bias 8 times, and no other layer's gradients much, if the layers below are
  // saturated.
  static constexpr float kAlsoFar = 3.5f;
  static constexpr float kNegligible = -10.0f;
  // How little a norm is above the largest value if that is nearly all of it.
  static constexpr float kOneValue = 0.25f;
  // How far above all gradients ever is absurd, and what is said of it: above what is not known.
  static constexpr float kAbsurd = 16.0f;
  static constexpr float kCertain = 2 * kAlone * kUnknown;

  // What a rank says of its gradients, by their numbers; those without values say nothing.
  Suspicion Judge(const std::vector<GradientSize>& sizes) const;

  // By how many powers of two a gradient's norm, or its largest value where that is more, is above
  // what it is held against; above all gradients ever if that is not known. REQUIRES: there are
  // gradients.
  float Above(size_t number, const GradientSize& size) const;

  // Takes the gradients of a step into the history.
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

  // Of one gradient, in this period and in the one before.
  struct Known {
    int steps = 0;
    bool whole = true;  // whether all of its values were looked at
    Largest norm[2];
    Largest largest[2];

    // What a norm, and a largest value, are held against; kNoSize if the gradient was zero lately.
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
