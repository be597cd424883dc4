// LockedStep: a step of the program that repeats, as every rank runs it while it is locked: its
// collectives by position, cut into buckets that run one after the other, round and round.
//
// A value: the negotiator makes it once, nobody changes it, and whoever collects its entries, votes
// on its buckets or runs them shares it.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/flow/decision.h"
#include "cc/flow/request.h"
#include "cc/flow/step_settings.h"

namespace tfhvd {

struct LockedStep {
  struct Collective {
    SharedRequest request;  // this rank's own
    Decision decision;      // of all ranks, when they agreed on it last; without a key
  };

  // Collectives that run together: `count` of them, from position `first` on.
  struct Bucket {
    int first = 0;
    int count = 0;
    int64_t bytes = 0;  // on this rank: of each tensor, the larger of input and result
  };

  std::vector<Collective> collectives;  // by position; no key comes twice
  std::vector<Bucket> buckets;          // in the order in which they run; none is empty
  int64_t term = 0;                     // after how many rounds it ends; 0: nobody knows
  FusionLimits fusion;                  // of each bucket
};

}  // namespace tfhvd
