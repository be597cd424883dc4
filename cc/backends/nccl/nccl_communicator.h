// NcclCommunicator: collectives on GPUs by NCCL, on the device's stream. See cc/comm/communicator.h
// for the contract.
//
// NCCL is called without blocking, so that a failed peer or a wrong network cannot block this
// process: long calls are polled, up to a deadline, and Abort may come in between from any thread.
// Sums of floats are NCCL's: their order of additions gives equal bits on every rank, but not those
// of the host's sums.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cc/backends/nccl/nccl_api.h"
#include "cc/backends/nccl/nccl_reduction.h"
#include "cc/base/log.h"
#include "cc/base/mutex.h"
#include "cc/comm/communicator.h"
#include "cc/device/cuda_device.h"

namespace tfhvd {

struct NcclOptions {
  double deadline = 120.0;  // seconds to connect the peers
  bool shared_gpu = false;  // the user wants several ranks on one GPU
  Log log;                  // reports at once what the other ranks learn after the deadline
};

class NcclCommunicator : public Communicator {
 public:
  // Collective over `host`'s ranks: fails on all of them with the reason of one. `fallback` does
  // what NCCL cannot; `device` and `host` must outlive the result. REQUIRES: the device has a GPU,
  // on which our kernel is loaded.
  static Status Make(const NcclApi& api, CudaDevice* device, Communicator* host,
                     std::unique_ptr<Communicator> fallback, const NcclOptions& options,
                     std::unique_ptr<Communicator>* out);
  ~NcclCommunicator() override;

  const char* name() const override { return "nccl"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                   const Reduction& reduction) override;
  Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) override;
  Status Broadcast(void* buffer, int64_t bytes, int root) override;
  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType dtype,
                       const Reduction& reduction) override;
  Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                  const std::vector<int64_t>& recv_bytes) override;
  Status Barrier() override;
  Status Poll() override TFHVD_EXCLUDES(mutex_);
  void Abort(const Status& why) override TFHVD_EXCLUDES(mutex_);

 private:
  using Clock = std::chrono::steady_clock;

  NcclCommunicator(const NcclApi& api, CudaDevice* device, std::unique_ptr<Communicator> fallback,
                   double deadline, int rank, int size);

  Status Connect(const nccl::UniqueId& id) TFHVD_EXCLUDES(mutex_);
  // Enqueues all collected copies, then runs `calls(stream)`, which enqueues more.
  template <typename Calls>
  Status Run(const char* name, const Calls& calls) TFHVD_EXCLUDES(mutex_);
  template <typename Calls>
  Status RunGroup(const char* name, const Calls& calls) TFHVD_EXCLUDES(mutex_);
  Status Settle(const char* name, nccl::Result result) TFHVD_EXCLUDES(mutex_);
  Status AskWhetherToWait(const char* name, WaitPacer* pacer) TFHVD_EXCLUDES(mutex_);
  Status WaitUntilDone() TFHVD_EXCLUDES(mutex_);
  nccl::Result Operation(const NcclReduction& plan, DType dtype, nccl::RedOp* op)
      TFHVD_REQUIRES(mutex_);

  const NcclApi api_;
  CudaDevice& device_;  // Not owned.
  const std::unique_ptr<Communicator> fallback_;
  const std::chrono::duration<double> deadline_;
  const int rank_;
  const int size_;

  // Held while a thread is within NCCL: an abort must not overlap a call.
  Mutex mutex_;
  nccl::Comm comm_ TFHVD_GUARDED_BY(mutex_) = nullptr;
  Status why_ TFHVD_GUARDED_BY(mutex_);  // not ok: aborted, and comm_ is null
};

}  // namespace tfhvd
