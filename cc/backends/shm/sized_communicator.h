// SizedShmCommunicator: collectives of one host in as much shared memory as they need. It begins
// with a page a slot, in which small ones go. With the first larger one the ranks make more, which
// they give back when no call has needed it for long. A process set that is not used, or only for
// a few numbers, takes next to no memory.
//
// Ranks decide by what all of them know: the sizes of a call, and how many calls there were.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/comm/communicator.h"

namespace tfhvd {

class SizedShmCommunicator : public Communicator {
 public:
  // So many calls in a row that need no more than the first memory have the rest given back.
  static constexpr int kCallsToKeep = 10000;

  // Collective: makes the larger one, over the first one. kUnavailable on all ranks if there is no
  // memory: then all calls go through the first one.
  using Make = std::function<Status(Communicator* first, std::unique_ptr<Communicator>* out)>;

  // `first` serves calls of up to `few` bytes.
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

  // Whether it has more than the first memory now. The engine's thread.
  bool is_large() const { return larger_ != nullptr; }

 private:
  Status For(int64_t bytes, Communicator** communicator);
  Status Enlarge() TFHVD_EXCLUDES(mutex_);
  void Replace(std::unique_ptr<Communicator> larger) TFHVD_EXCLUDES(mutex_);

  const std::unique_ptr<Communicator> first_;
  const int64_t few_;
  const Make make_;
  Mutex mutex_;  // against Abort: `larger_` changes on the engine's thread alone
  std::unique_ptr<Communicator> larger_;
  bool refused_ = false;  // there is no memory for it
  int calls_ = 0;         // since one needed it
};

}  // namespace tfhvd
