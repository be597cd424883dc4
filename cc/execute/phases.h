// Phases: the phases of the running plan, as an observer wants them. Phase: one of them.
//
// Used by the engine's thread only.
#pragma once

#include <vector>

#include "cc/flow/observer.h"
#include "cc/flow/plan.h"

namespace tfhvd {

class Phases {
 public:
  // Not owned, may be null.
  void SetObserver(Observer* observer) { observer_ = observer; }

  // Begins a plan: records the entries whose phases the observer wants.
  void BeginPlan(const Plan& plan, const std::vector<Agreed>& agreed) {
    observed_.clear();
    if (observer_ == nullptr || !observer_->on()) return;
    observer_->Carries(plan);
    for (const Piece& piece : plan.pieces) {
      const EntryId id = agreed[piece.agreed].entry.id;
      if (observed_.empty() || observed_.back() != id) observed_.push_back(id);  // once for a group
    }
  }

  // The entry is done.
  void Done(EntryId id, const Status& status) const {
    if (observer_ != nullptr && observer_->on()) observer_->Done(id, status);
  }

 private:
  friend class Phase;

  Observer* observer_ = nullptr;   // Not owned.
  std::vector<EntryId> observed_;  // of the running plan; empty if there is no observer
};

// A phase of the running plan, reported to the observer; lasts as long as this object. The texts
// live as long as the process.
class Phase {
 public:
  Phase(const Phases* phases, const char* name) : Phase(phases, name, "") {}
  Phase(const Phases* phases, const char* carrier, const char* call) : phases_(phases) {
    if (!phases_->observed_.empty()) phases_->observer_->Begin(phases_->observed_, carrier, call);
  }
  ~Phase() {
    if (!phases_->observed_.empty()) phases_->observer_->End(phases_->observed_);
  }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  const Phases* const phases_;  // Not owned.
};

}  // namespace tfhvd
