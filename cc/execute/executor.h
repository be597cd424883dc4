// Executor: runs plans. One plan is: copy in (where fused), one call on a Communicator, copy out,
// complete.
//
// Used by the engine's thread only.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cc/comm/communicator.h"
#include "cc/device/device.h"
#include "cc/flow/plan.h"

namespace tfhvd {

class Executor {
 public:
  // `device` must outlive this object, as must every communicator given to it.
  explicit Executor(Device* device) : device_(device) {}

  void SetCommunicator(int32_t process_set, Communicator* communicator) {
    communicators_[process_set] = communicator;
  }

  // Runs `plans`, which were made from `agreed`, and completes every entry of it, each as soon as
  // its last tensor is done. An error means that a communicator is broken and the job with it; the
  // entries not done by then have failed with it.
  Status Run(const std::vector<Plan>& plans, std::vector<Agreed> agreed);

 private:
  Status RunPlan(const Plan& plan, std::vector<Agreed>* agreed);
  Status AllReduce(const Plan& plan, Communicator* communicator, std::vector<Agreed>* agreed);
  Status Broadcast(const Plan& plan, Communicator* communicator, std::vector<Agreed>* agreed);
  Status AllGather(const Plan& plan, Communicator* communicator, std::vector<Agreed>* agreed);

  Device* const device_;                                      // Not owned.
  std::unordered_map<int32_t, Communicator*> communicators_;  // Not owned; by process set.
};

}  // namespace tfhvd
