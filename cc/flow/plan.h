// Plan: the tensors that one call on a Communicator carries. Made by the planner, run by the
// executor.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/flow/decision.h"
#include "cc/flow/entry.h"
#include "cc/flow/step_settings.h"

namespace tfhvd {

// An entry that every rank has agreed on, with the decision.
struct Agreed {
  Entry entry;
  Decision decision;  // its key may be missing: the entry has it
};

// Entries that were agreed on at one time, in the order of execution, and are planned together on
// every rank.
struct Together {
  std::vector<Agreed> agreed;
  FusionLimits fusion;
};

// One tensor of an agreed entry.
struct Piece {
  int agreed = 0;  // index into the list of agreed entries that the plan was made from
  int tensor = 0;  // index into that entry's tensors
  int64_t bytes = 0;
};

struct Plan {
  int32_t process_set = 0;
  Collective kind = Collective::kAllReduce;
  DeviceKind device = DeviceKind::kHost;
  DType dtype = DType::kFloat32;  // of the reduced values: of a complex tensor its parts'
  Reduction reduction;
  std::vector<int64_t> weights;  // Decision::weights
  int32_t root = 0;
  std::vector<Piece> pieces;  // more than one: fused
  int64_t bytes = 0;          // of all pieces
};

}  // namespace tfhvd
