// CallBarrier: where the ranks of an inproc communicator show each other their buffers.
//
// A collective is: Begin with this rank's call, read and write the others' buffers, End. All ranks
// pass Begin together and End together. A rank that leaves with an error does so only when nobody
// touches its buffers any more, and the others go on waiting for it: each learns of the failure
// from its own wait monitor.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/comm/wait_monitor.h"
#include "cc/numeric/arithmetic.h"

namespace tfhvd {

// What a rank calls, shown to the others while the collective runs.
struct InprocCall {
  Collective kind = Collective::kBarrier;
  const char* in = nullptr;
  char* out = nullptr;
  std::vector<int64_t> sizes;  // as the collective has them: count, bytes or counts
  int root = 0;
  DType dtype = DType::kUInt8;
  Reduction reduction;
};

class CallBarrier {
 public:
  explicit CallBarrier(int size);

  int size() const { return static_cast<int>(calls_.size()); }

  // Asked in every wait of a rank whether to go on; the missing ranks' numbers are those here.
  using OnWait = std::function<Status(const std::vector<int>& missing, double seconds)>;

  // Shows `call` and waits for all ranks. Fails where the ranks' calls do not fit each other.
  Status Begin(int rank, InprocCall call, const OnWait& on_wait);

  // Between Begin and End: what the ranks have shown.
  const InprocCall& call(int rank) const { return calls_[static_cast<size_t>(rank)]; }

  // Waits until all ranks are here.
  Status End(int rank, const OnWait& on_wait);

  // Makes the rank's waits return `why`; the first reason stays. Any thread.
  void AbortRank(int rank, const Status& why);

  // The same for all ranks at once: as if what joins them broke.
  void Abort(const Status& why);

  // Not ok: why the rank's waits fail. Any thread.
  Status aborted(int rank);

 private:
  // `then_active`: how many ranks touch buffers once this barrier is passed.
  Status Meet(int rank, int then_active, const OnWait& on_wait);
  Status Ask(const OnWait& on_wait, double seconds) TFHVD_REQUIRES(mutex_);
  Status CheckCalls() const;

  // Entry r is written by rank r before it passes Begin, read by all between Begin and End; the
  // mutex of the barriers orders the two.
  std::vector<InprocCall> calls_;

  Mutex mutex_;
  CondVar changed_;
  std::vector<bool> here_ TFHVD_GUARDED_BY(mutex_);  // by rank: waits at the barrier
  int arrived_ TFHVD_GUARDED_BY(mutex_) = 0;         // how many do
  int64_t generation_ TFHVD_GUARDED_BY(mutex_) = 0;
  int active_ TFHVD_GUARDED_BY(mutex_) = 0;               // ranks between Begin and End
  std::vector<Status> aborted_ TFHVD_GUARDED_BY(mutex_);  // by rank
};

}  // namespace tfhvd
