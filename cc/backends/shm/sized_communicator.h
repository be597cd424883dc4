// SizedShmCommunicator: collectives of one host in as much shared memory as they need. It begins
// with a page for each slot, for small calls. With the first larger call the ranks make a larger
// communicator, which they give up when no call has needed it for long. So a process set that is
// not used, or only for a few numbers, takes almost no memory.
//
// Ranks decide from facts that all of them know: the sizes of a call, and the number of calls.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/comm/communicator.h"

namespace tfhvd {

class SizedShmCommunicator : public Communicator {
 public:
  // The larger memory is given back after so many calls in a row that do not need it.
  static constexpr int kCallsToKeep = 10000;

  // Makes the larger communicator, over the first one. Collective. Returns kUnavailable on all
  // ranks if there is no memory: then all calls use the first one.
  using Make = std::function<Status(Communicator* first, std::unique_ptr<Communicator>* out)>;

  // `first` is for calls of up to `few` bytes.
  SizedShmCommunicator(std::unique_ptr<Communicator> first, int64_t few, Make make)
      : first_(std::move(first)), few_(few), make_(std::move(make)) {}

  const char* name() const override { return first_->name(); }
  int rank() const override { return first_->rank(); }
  int size() const override { return first_->size(); }

  Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                   const Reduction& reduction) override;
  Status AllReduceSpans(const std::vector<Span>& spans, DType dtype,
                        const Reduction& reduction) override;
  bool takes_spans(int64_t bytes) const override { return first_->takes_spans(bytes); }
  Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) override;
  Status Broadcast(void* buffer, int64_t bytes, int root) override;
  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType dtype,
                       const Reduction& reduction) override;
  Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                  const std::vector<int64_t>& recv_bytes) override;
  Status Barrier() override;
  bool prompt() const override { return first_->prompt(); }
  Status Poll() override;
  void Abort(const Status& why) override TFHVD_EXCLUDES(mutex_);
  void SetWaitMonitor(WaitMonitor* monitor) override;

  // Returns whether the larger communicator exists now. The engine's thread.
  bool is_large() const { return larger_ != nullptr; }

 private:
  Status For(int64_t bytes, Communicator** communicator);
  Status Enlarge() TFHVD_EXCLUDES(mutex_);
  void Replace(std::unique_ptr<Communicator> larger) TFHVD_EXCLUDES(mutex_);

  const std::unique_ptr<Communicator> first_;
  const int64_t few_;
  const Make make_;
  Mutex mutex_;  // for Abort: only the engine's thread changes `larger_`
  std::unique_ptr<Communicator> larger_;
  bool refused_ = false;  // there is no memory for it
  int calls_ = 0;         // since a call needed it
};

}  // namespace tfhvd
