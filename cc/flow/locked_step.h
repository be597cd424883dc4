// LockedStep: a repeating step of the program, as every rank runs it while it is locked: its
// collectives by position, cut into buckets that run one after the other, again and again.
//
// A value: the negotiator makes it once and it never changes. The code that collects its entries,
// votes on its buckets or runs them shares it.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/flow/decision.h"
#include "cc/flow/request.h"
#include "cc/flow/step_settings.h"

namespace tfhvd {

struct LockedStep {
  struct Collective {
    SharedRequest request;  // of this rank
    Decision decision;      // the last decision of all ranks; without a key
  };

  // Collectives that run together: `count` of them, beginning at position `first`.
  struct Bucket {
    int first = 0;
    int count = 0;
    int64_t bytes = 0;  // on this rank: of each tensor, the larger of input and result
  };

  std::vector<Collective> collectives;  // by position; no key comes twice
  std::vector<Bucket> buckets;          // in the order in which they run; none is empty
  int64_t term = 0;                     // after how many rounds it ends; 0: without limit
  FusionLimits fusion;                  // of each bucket
};

}  // namespace tfhvd
