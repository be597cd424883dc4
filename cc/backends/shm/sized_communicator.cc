#include "cc/backends/shm/sized_communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tfhvd {

// Returns the communicator for a call of `bytes` bytes, equal on every rank. An abort of the first
// one is an abort of both.
Status SizedShmCommunicator::For(int64_t bytes, Communicator** communicator) {
  TFHVD_RETURN_IF_ERROR(first_->Poll());
  if (bytes > few_) {
    calls_ = 0;
    if (larger_ == nullptr && !refused_) TFHVD_RETURN_IF_ERROR(Enlarge());
  } else if (larger_ != nullptr && ++calls_ > kCallsToKeep) {
    Replace(nullptr);
  }
  *communicator = larger_ != nullptr ? larger_.get() : first_.get();
  return Status::Ok();
}

Status SizedShmCommunicator::Enlarge() {
  std::unique_ptr<Communicator> larger;
  const Status made = make_(first_.get(), &larger);
  refused_ = made.code() == StatusCode::kUnavailable;
  if (refused_) return Status::Ok();
  TFHVD_RETURN_IF_ERROR(made);
  larger->SetWaitMonitor(wait_monitor());
  Replace(std::move(larger));
  return first_->Poll();
}

void SizedShmCommunicator::Replace(std::unique_ptr<Communicator> larger) {
  const MutexLock lock(&mutex_);
  larger_.swap(larger);
}

Status SizedShmCommunicator::AllReduce(const void* in, void* out, int64_t count, DType dtype,
                                       const Reduction& reduction) {
  Communicator* communicator = nullptr;
  TFHVD_RETURN_IF_ERROR(For(count * ItemSize(dtype), &communicator));
  return communicator->AllReduce(in, out, count, dtype, reduction);
}

Status SizedShmCommunicator::AllReduceSpans(const std::vector<Span>& spans, DType dtype,
                                            const Reduction& reduction) {
  int64_t bytes = 0;
  for (const Span& span : spans) bytes += span.bytes;
  Communicator* communicator = nullptr;
  TFHVD_RETURN_IF_ERROR(For(bytes, &communicator));
  return communicator->AllReduceSpans(spans, dtype, reduction);
}

Status SizedShmCommunicator::AllGather(const void* in, void* out,
                                       const std::vector<int64_t>& bytes) {
  Communicator* communicator = nullptr;
  TFHVD_RETURN_IF_ERROR(For(*std::max_element(bytes.begin(), bytes.end()), &communicator));
  return communicator->AllGather(in, out, bytes);
}

Status SizedShmCommunicator::Broadcast(void* buffer, int64_t bytes, int root) {
  Communicator* communicator = nullptr;
  TFHVD_RETURN_IF_ERROR(For(bytes, &communicator));
  return communicator->Broadcast(buffer, bytes, root);
}

Status SizedShmCommunicator::ReduceScatter(const void* in, void* out,
                                           const std::vector<int64_t>& counts, DType dtype,
                                           const Reduction& reduction) {
  const int64_t count = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  Communicator* communicator = nullptr;
  TFHVD_RETURN_IF_ERROR(For(count * ItemSize(dtype), &communicator));
  return communicator->ReduceScatter(in, out, counts, dtype, reduction);
}

// A rank knows only its sizes. Ranks exchange them if there is no larger communicator yet; an
// existing one counts as needed.
Status SizedShmCommunicator::AllToAll(const void* in, const std::vector<int64_t>& send_bytes,
                                      void* out, const std::vector<int64_t>& recv_bytes) {
  int64_t most = few_ + 1;
  if (larger_ == nullptr && !refused_) {
    most = std::accumulate(send_bytes.begin(), send_bytes.end(), int64_t{0});
    Reduction max;
    max.op = ReduceOp::kMax;
    TFHVD_RETURN_IF_ERROR(first_->AllReduce(&most, &most, 1, DType::kInt64, max));
  }
  Communicator* communicator = nullptr;
  TFHVD_RETURN_IF_ERROR(For(most, &communicator));
  return communicator->AllToAll(in, send_bytes, out, recv_bytes);
}

Status SizedShmCommunicator::Barrier() {
  Communicator* communicator = nullptr;
  TFHVD_RETURN_IF_ERROR(For(0, &communicator));
  return communicator->Barrier();
}

Status SizedShmCommunicator::Poll() {
  TFHVD_RETURN_IF_ERROR(first_->Poll());
  return larger_ != nullptr ? larger_->Poll() : Status::Ok();
}

void SizedShmCommunicator::Abort(const Status& why) {
  first_->Abort(why);
  const MutexLock lock(&mutex_);
  if (larger_ != nullptr) larger_->Abort(why);
}

void SizedShmCommunicator::SetWaitMonitor(WaitMonitor* monitor) {
  Communicator::SetWaitMonitor(monitor);
  first_->SetWaitMonitor(monitor);
  if (larger_ != nullptr) larger_->SetWaitMonitor(monitor);
}

}  // namespace tfhvd
