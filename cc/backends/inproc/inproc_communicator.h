// InprocCommunicator: the communicator among threads: every rank reads the others' buffers in
// place. See cc/comm/communicator.h for the contract, of which it gives the minimum: Abort affects
// this rank only.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "cc/backends/inproc/call_barrier.h"
#include "cc/comm/communicator.h"

namespace tfhvd {

class InprocCommunicator : public Communicator {
 public:
  // `members`: the ranks' numbers in the job, for messages.
  InprocCommunicator(std::shared_ptr<CallBarrier> barrier, std::vector<int> members, int rank);

  const char* name() const override { return "inproc"; }
  int rank() const override { return rank_; }
  int size() const override { return barrier_->size(); }

  Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                   const Reduction& reduction) override;
  // All work happens within FinishAllReduce, as late as the contract allows.
  Status StartAllReduce(const void* in, void* out, int64_t count, DType dtype,
                        const Reduction& reduction) override;
  Status FinishAllReduce() override;
  Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) override;
  Status Broadcast(void* buffer, int64_t bytes, int root) override;
  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType dtype,
                       const Reduction& reduction) override;
  Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                  const std::vector<int64_t>& recv_bytes) override;
  Status Barrier() override;
  bool prompt() const override { return true; }
  Status Poll() override;
  void Abort(const Status& why) override;

 private:
  Status Begin(InprocCall call);
  Status End();
  Status StillWaits(const std::vector<int>& missing, double seconds);

  const std::shared_ptr<CallBarrier> barrier_;
  const std::vector<int> members_;
  const CallBarrier::OnWait on_wait_ = [this](const std::vector<int>& missing, double seconds) {
    return StillWaits(missing, seconds);
  };
  const int rank_;
  std::deque<std::function<Status()>> started_;  // allreduces, the oldest first
};

}  // namespace tfhvd
