// A communicator that is another one, but for its allreduce: a test says what that does.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cc/comm/communicator.h"

namespace tfhvd {

class WrappedCommunicator : public Communicator {
 public:
  // `reduce` is given the allreduce of `inner`, to call or not.
  using Reduce = std::function<Status(const std::function<Status()>& inner)>;

  WrappedCommunicator(std::unique_ptr<Communicator> inner, Reduce reduce)
      : inner_(std::move(inner)), reduce_(std::move(reduce)) {}

  const char* name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                   const Reduction& reduction) override {
    return reduce_([&] { return inner_->AllReduce(in, out, count, dtype, reduction); });
  }
  Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) override {
    return inner_->AllGather(in, out, bytes);
  }
  Status Broadcast(void* buffer, int64_t bytes, int root) override {
    return inner_->Broadcast(buffer, bytes, root);
  }
  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType dtype,
                       const Reduction& reduction) override {
    return inner_->ReduceScatter(in, out, counts, dtype, reduction);
  }
  Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                  const std::vector<int64_t>& recv_bytes) override {
    return inner_->AllToAll(in, send_bytes, out, recv_bytes);
  }
  Status Barrier() override { return inner_->Barrier(); }
  Status Poll() override { return inner_->Poll(); }
  void Abort(const Status& why) override { inner_->Abort(why); }
  bool settled() override { return is_settled == nullptr || is_settled->load(); }
  void SetWaitMonitor(WaitMonitor* monitor) override { inner_->SetWaitMonitor(monitor); }

  std::shared_ptr<std::atomic<bool>> is_settled;  // null: always

 private:
  const std::unique_ptr<Communicator> inner_;
  const Reduce reduce_;
};

}  // namespace tfhvd
