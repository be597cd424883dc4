// Reconciler: the steps that the members of a new generation take together before their engine
// takes entries. Afterwards every rank has done the same collectives, and has the same counts.
//
// The thread that follows the membership. No engine has an entry meanwhile. Calls `done` of entries
// without holding a lock.
#pragma once

#include <cstdint>

#include "cc/base/failpoints.h"
#include "cc/base/log.h"
#include "cc/comm/communicator.h"
#include "cc/comm/membership.h"
#include "cc/elastic/elastic_state.h"
#include "cc/elastic/ledger.h"

namespace tfhvd {

class Reconciler {
 public:
  // `state` must outlive this object.
  Reconciler(ElasticState* state, const Log& log, const Failpoints& failpoints)
      : state_(state), log_(log), failpoints_(failpoints) {}

  // Collective over `everyone`, the members of `roster`. `before`: the roster that this rank had.
  Status Run(const Roster& before, const Roster& roster, Communicator* everyone)
      TFHVD_EXCLUDES(state_->mutex);

 private:
  Status ShareCountsWith(const Roster& before, Communicator* everyone)
      TFHVD_EXCLUDES(state_->mutex);
  void FailUntilRolledBack(int generation) TFHVD_EXCLUDES(state_->mutex);
  Position OwnPosition(bool lost_some) TFHVD_EXCLUDES(state_->mutex);
  void CatchUp(int64_t barriers) TFHVD_EXCLUDES(state_->mutex);
  Status Read(const CollectiveSeq& seq, char* data) TFHVD_EXCLUDES(state_->mutex);
  void Apply(const ResultRecord& record, const char* data) TFHVD_EXCLUDES(state_->mutex);

  ElasticState* const state_;  // Not owned.
  const Log& log_;
  const Failpoints& failpoints_;
};

}  // namespace tfhvd
