// PlanMemory: the memory that a plan needs in addition to that of its entries, before any data
// move. Each rank tells the others what it cannot get: so a collective fails on all ranks, and the
// job continues.
//
// Used by the engine's thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/collectives/adasum.h"
#include "cc/execute/plan_context.h"
#include "cc/flow/plan.h"

namespace tfhvd {

// The memory that a plan needs on this rank in addition to its entries'.
struct PlanMemory {
  // allgather, reducescatter: the bytes that each rank sends or gets, by piece and rank; and
  // their sum over all pieces, by rank.
  std::vector<std::vector<int64_t>> bytes;
  std::vector<int64_t> of_all;
  std::vector<int64_t> sent;  // alltoall: rows, by rank
  std::vector<int64_t> received;
  char* buffer = nullptr;  // the fusion buffer
  AdasumMemory adasum;
  std::vector<char> copy;  // Adasum: the tensor in host memory, or the zeros of a joined rank

  int64_t lacks = 0;  // bytes that this rank could not get
  Status why;         // the first reason
  void Note(int64_t bytes, const Status& status);
};

// Gets all the memory that the plan needs on this rank. What this rank cannot get is noted in
// `memory`.
Status GetMemory(const PlanContext& context, const Plan& plan, std::vector<Agreed>* agreed,
                 PlanMemory* memory);

// Collective over the ranks of the plan. Returns in `lacks` the bytes that each of them lacks, by
// rank; empty if no rank lacks any.
Status ShareLacks(const PlanContext& context, const Plan& plan, const PlanMemory& memory,
                  std::vector<int64_t>* lacks);

// Returns the error of a collective for which some ranks lack memory, equal on every rank; `lacks`
// and `members` by rank of the set.
Status LackOf(const Request& request, const std::vector<int>& members,
              const std::vector<int64_t>& lacks);

}  // namespace tfhvd
