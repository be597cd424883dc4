// Cancellations: informs collectives when TensorFlow cancels their step. All collectives of one
// step share one registration with its CancellationManager. That manager keeps 256 consecutive
// registrations in one bucket of its hash map: if each had a registration, hundreds of small
// collectives would cost more there than everywhere else.
//
// All methods may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfhvd {

class Cancellations : public std::enable_shared_from_this<Cancellations> {
 public:
  // An object that can be cancelled.
  class Member {
   public:
    virtual ~Member() = default;

    // Called at most once, when the step is cancelled; afterwards the member belongs to no step.
    virtual void OnCancelled() = 0;

   private:
    friend class Cancellations;
    // Guarded by the mutex of the Cancellations that the member has joined.
    uint64_t group_ = 0;  // 0: none
    size_t index_ = 0;    // among the group's members
  };

  // Returns the Cancellations of the kernel's device, which lives as long as a kernel holds it.
  static absl::Status Of(tensorflow::OpKernelConstruction* ctx,
                         std::shared_ptr<Cancellations>* found);

  // From here until Leave, cancelling the step of `manager` calls `member`. Returns false if the
  // step is cancelled already. REQUIRES: `manager` lives until Leave or OnCancelled.
  bool Join(tensorflow::CancellationManager* manager, std::shared_ptr<Member> member)
      TFHVD_EXCLUDES(mutex_);

  // Does nothing for a member that has not joined, or that was or is being cancelled.
  void Leave(Member* member) TFHVD_EXCLUDES(mutex_);

 private:
  // The members of one step; exists while it has members.
  struct Group {
    uint64_t id = 0;
    tensorflow::CancellationManager* manager = nullptr;  // Not owned.
    tensorflow::CancellationToken token = 0;
    std::vector<std::shared_ptr<Member>> members;
  };

  void CancelGroup(uint64_t id) TFHVD_EXCLUDES(mutex_);
  std::vector<Group>::iterator Find(uint64_t id) TFHVD_REQUIRES(mutex_);
  void Add(Group* group, std::shared_ptr<Member> member) TFHVD_REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<Group> groups_ TFHVD_GUARDED_BY(mutex_);  // one for each running step: few
  uint64_t last_id_ TFHVD_GUARDED_BY(mutex_) = 0;
};

}  // namespace tfhvd
