// CallBarrier: the place where the ranks of an inproc communicator publish their buffers.
//
// A collective is: Begin with this rank's call, read and write the others' buffers, End. All ranks
// pass Begin together and End together. A rank that leaves with an error does so only when no rank
// touches its buffers any more. The others continue to wait for it: each learns of the failure from
// its own wait monitor.
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

// A rank's call, published to the others while the collective runs.
struct InprocCall {
  Collective kind = Collective::kBarrier;
  const char* in = nullptr;
  char* out = nullptr;
  std::vector<int64_t> sizes;  // of the collective: count, bytes or counts
  int root = 0;
  DType dtype = DType::kUInt8;
  Reduction reduction;
};

class CallBarrier {
 public:
  explicit CallBarrier(int size);

  int size() const { return static_cast<int>(calls_.size()); }

  // Called in every wait of a rank, to decide whether to continue; `missing`: numbers of ranks in
  // this communicator.
  using OnWait = std::function<Status(const std::vector<int>& missing, double seconds)>;

  // Publishes `call` and waits for all ranks. Fails if the ranks' calls do not match.
  Status Begin(int rank, InprocCall call, const OnWait& on_wait);

  // Between Begin and End: returns the call of a rank.
  const InprocCall& call(int rank) const { return calls_[static_cast<size_t>(rank)]; }

  // Waits until all ranks are here.
  Status End(int rank, const OnWait& on_wait);

  // Makes the rank's waits return `why`; the first reason stays. Any thread.
  void AbortRank(int rank, const Status& why);

  // Does so for all ranks at once, as if their connection broke.
  void Abort(const Status& why);

  // Returns why the rank's waits fail; ok if they do not. Any thread.
  Status aborted(int rank);

 private:
  // `then_active`: how many ranks touch buffers after this barrier.
  Status Meet(int rank, int then_active, const OnWait& on_wait);
  Status Ask(const OnWait& on_wait, double seconds) TFHVD_REQUIRES(mutex_);
  Status CheckCalls() const;

  // Rank r writes entry r before it passes Begin; all read it between Begin and End. The mutex of
  // the barriers orders the two.
  std::vector<InprocCall> calls_;

  Mutex mutex_;
  CondVar changed_;
  std::vector<bool> here_ TFHVD_GUARDED_BY(mutex_);  // by rank: waits at the barrier
  int arrived_ TFHVD_GUARDED_BY(mutex_) = 0;         // number of waiting ranks
  int64_t generation_ TFHVD_GUARDED_BY(mutex_) = 0;
  int active_ TFHVD_GUARDED_BY(mutex_) = 0;               // ranks between Begin and End
  std::vector<Status> aborted_ TFHVD_GUARDED_BY(mutex_);  // by rank
};

}  // namespace tfhvd
