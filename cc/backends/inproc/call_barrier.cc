#include "cc/backends/inproc/call_barrier.h"

#include <string>
#include <utility>

namespace tfhvd {
namespace {

std::string Describe(const InprocCall& call) {
  std::string s = std::string(CollectiveName(call.kind)) + " of sizes " + ShapeString(call.sizes);
  return s + ", type " + DTypeName(call.dtype) + ", op " + ReduceOpName(call.reduction.op) +
         ", root " + std::to_string(call.root);
}

// Returns whether `a` of rank i and `b` of rank j match. An alltoall's sizes are the bytes that a
// rank sends: they differ between ranks.
bool Fit(const InprocCall& a, const InprocCall& b) {
  return a.kind == b.kind && a.root == b.root && a.dtype == b.dtype && a.reduction == b.reduction &&
         (a.kind == Collective::kAllToAll || a.sizes == b.sizes);
}

}  // namespace

CallBarrier::CallBarrier(int size)
    : calls_(static_cast<size_t>(size)),
      here_(static_cast<size_t>(size), false),
      aborted_(static_cast<size_t>(size)) {}

Status CallBarrier::Begin(int rank, InprocCall call, const OnWait& on_wait) {
  calls_[static_cast<size_t>(rank)] = std::move(call);
  TFHVD_RETURN_IF_ERROR(Meet(rank, size(), on_wait));
  const Status fit = CheckCalls();
  if (fit.ok()) return fit;
  Abort(fit);
  return Meet(rank, 0, on_wait);
}

Status CallBarrier::End(int rank, const OnWait& on_wait) { return Meet(rank, 0, on_wait); }

Status CallBarrier::CheckCalls() const {
  for (int r = 1; r < size(); ++r) {
    if (Fit(call(0), call(r))) continue;
    return Status::Internal(
        "The ranks of a communicator call different collectives. Rank 0: " + Describe(call(0)) +
        ". Rank " + std::to_string(r) + ": " + Describe(call(r)) + ".");
  }
  return Status::Ok();
}

Status CallBarrier::Meet(int rank, int then_active, const OnWait& on_wait) {
  const auto self = static_cast<size_t>(rank);
  const MutexLock lock(&mutex_);
  // From here on this rank touches no other rank's buffer; a rank that leaves may wait for that.
  if (active_ > 0 && --active_ == 0) changed_.NotifyAll();
  if (aborted_[self].ok()) {
    here_[self] = true;
    ++arrived_;
    if (arrived_ == size()) {
      here_.assign(here_.size(), false);
      arrived_ = 0;
      active_ = then_active;
      ++generation_;
      changed_.NotifyAll();
      return Status::Ok();
    }
    const int64_t generation = generation_;
    WaitPacer pacer;
    while (generation_ == generation && aborted_[self].ok()) {
      changed_.WaitFor(&mutex_, pacer.interval());
      if (generation_ != generation || !pacer.Due()) continue;
      const Status status = Ask(on_wait, pacer.waited());
      if (generation_ == generation && !status.ok()) aborted_[self] = status;
    }
    if (generation_ != generation) return Status::Ok();
    here_[self] = false;  // the others continue to wait
    --arrived_;
  }
  changed_.NotifyAll();
  while (active_ > 0) changed_.Wait(&mutex_);  // others may still read this rank's buffers
  return aborted_[self];
}

// Releases the lock during the call.
Status CallBarrier::Ask(const OnWait& on_wait, double seconds) {
  std::vector<int> missing;
  for (int r = 0; r < size(); ++r) {
    if (!here_[static_cast<size_t>(r)]) missing.push_back(r);
  }
  mutex_.Unlock();
  const Status status = on_wait(missing, seconds);
  mutex_.Lock();
  return status;
}

Status CallBarrier::aborted(int rank) {
  const MutexLock lock(&mutex_);
  return aborted_[static_cast<size_t>(rank)];
}

void CallBarrier::AbortRank(int rank, const Status& why) {
  const MutexLock lock(&mutex_);
  Status& aborted = aborted_[static_cast<size_t>(rank)];
  if (aborted.ok()) aborted = why;
  changed_.NotifyAll();
}

void CallBarrier::Abort(const Status& why) {
  for (int r = 0; r < size(); ++r) AbortRank(r, why);
}

}  // namespace tfhvd
