#include "cc/backends/inproc/meeting.h"

#include <string>
#include <utility>

namespace tfhvd {
namespace {

std::string Describe(const InprocCall& call) {
  std::string s = std::string(CollectiveName(call.kind)) + " of sizes " + ShapeString(call.sizes);
  return s + ", type " + DTypeName(call.dtype) + ", op " + ReduceOpName(call.reduction.op) +
         ", root " + std::to_string(call.root);
}

// Whether `a` of rank i and `b` of rank j belong together. An alltoall's sizes are what a rank
// sends: each has its own.
bool Fit(const InprocCall& a, const InprocCall& b) {
  return a.kind == b.kind && a.root == b.root && a.dtype == b.dtype && a.reduction == b.reduction &&
         (a.kind == Collective::kAllToAll || a.sizes == b.sizes);
}

}  // namespace

Meeting::Meeting(int size) : calls_(static_cast<size_t>(size)) {}

Status Meeting::Begin(int rank, InprocCall call) {
  calls_[static_cast<size_t>(rank)] = std::move(call);
  TFHVD_RETURN_IF_ERROR(Meet(size()));
  const Status fit = CheckCalls();
  if (fit.ok()) return fit;
  Abort(fit);
  return Meet(0);
}

Status Meeting::End() { return Meet(0); }

Status Meeting::CheckCalls() const {
  for (int r = 1; r < size(); ++r) {
    if (Fit(call(0), call(r))) continue;
    return Status::Internal(
        "The ranks of a communicator call different collectives. Rank 0: " + Describe(call(0)) +
        ". Rank " + std::to_string(r) + ": " + Describe(call(r)) + ".");
  }
  return Status::Ok();
}

Status Meeting::Meet(int then_active) {
  const MutexLock lock(&mutex_);
  if (active_ > 0) --active_;  // from here on this rank touches nobody's buffer
  if (aborted_.ok()) {
    ++arrived_;
    if (arrived_ == size()) {
      arrived_ = 0;
      active_ = then_active;
      ++generation_;
      changed_.NotifyAll();
      return Status::Ok();
    }
    const int64_t generation = generation_;
    while (generation_ == generation && aborted_.ok()) changed_.Wait(&mutex_);
    if (generation_ != generation) return Status::Ok();
  }
  changed_.NotifyAll();
  while (active_ > 0) changed_.Wait(&mutex_);  // others may still read from this rank's buffers
  return aborted_;
}

Status Meeting::aborted() {
  const MutexLock lock(&mutex_);
  return aborted_;
}

void Meeting::Abort(const Status& why) {
  const MutexLock lock(&mutex_);
  if (aborted_.ok()) aborted_ = why;
  changed_.NotifyAll();
}

}  // namespace tfhvd
