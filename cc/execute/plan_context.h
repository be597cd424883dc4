// PlanContext: where a plan runs.
#pragma once

#include <functional>

#include "cc/base/status.h"
#include "cc/comm/communicator.h"
#include "cc/device/device.h"
#include "cc/execute/phases.h"
#include "cc/flow/process_set_table.h"

namespace tfhvd {

// Owns nothing; lasts as long as the plan.
struct PlanContext {
  Device* device = nullptr;              // of the plan's tensors
  bool on_accelerator = false;           // whether `device` is one
  Communicator* communicator = nullptr;  // of the plan's process set, for that device
  Communicator* host = nullptr;          // of the same ranks, for host memory
  const ProcessSetTable* sets = nullptr;
  const Phases* phases = nullptr;
  // Called with the seconds waited in a wait for memory on the accelerator; an error ends the wait.
  const std::function<Status(double)>* on_wait = nullptr;
};

}  // namespace tfhvd
