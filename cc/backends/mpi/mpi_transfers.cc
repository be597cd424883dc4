#include "cc/backends/mpi/mpi_transfers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cc/backends/mpi/mpi_error.h"
#include "cc/base/types.h"

namespace tfhvd {
MpiTransfers::MpiTransfers(MpiPort port, std::function<Status(const tfhvd::Wait&)> on_wait)
    : port_(std::move(port)), on_wait_(std::move(on_wait)) {}

Status MpiTransfers::Begin(const char* what) {
  what_ = what;
  remaining_.clear();
  looked_.assign(2 * kMpiChannels * port_.members.size(), 0);
  (void)Aborted();
  return failure_;
}

// MPI cancels receives that nothing has matched; the others, and sends, end when the peer takes
// part, if it still does.
Status MpiTransfers::End() {
  if (Wait(0, next())) return Status::Ok();
  for (Active& active : active_) {
    if (active.lane.receives) (void)port_.api->Cancel(&active.request);
  }
  (void)Settle();
  return failure_;
}

bool MpiTransfers::Settle() {
  for (size_t i = 0; i < active_.size();) {
    int done = 0;
    const int error = port_.api->Test(&active_[i].request, &done);
    if (error == 0 && done == 0) {
      ++i;
      continue;
    }
    active_[i] = active_.back();
    active_.pop_back();
  }
  return active_.empty();
}

MpiTransfers::TransferId MpiTransfers::Send(int to, const void* data, int64_t bytes,
                                            MpiChannel channel) {
  return Start({to, false, channel}, static_cast<char*>(const_cast<void*>(data)), bytes);
}

MpiTransfers::TransferId MpiTransfers::Receive(int from, void* data, int64_t bytes,
                                               MpiChannel channel) {
  return Start({from, true, channel}, static_cast<char*>(data), bytes);
}

MpiTransfers::TransferId MpiTransfers::Start(const Lane& lane, char* data, int64_t bytes) {
  const TransferId id = next();
  remaining_.push_back(0);
  const int partner = port_.members[static_cast<size_t>(lane.peer)];
  const int tag = port_.tag + static_cast<int>(lane.channel);
  for (int64_t done = 0; done < bytes && failure_.ok(); done += kMpiMessageBytes) {
    const int n = static_cast<int>(std::min(kMpiMessageBytes, bytes - done));
    MpiHandle request = 0;
    const int error = lane.receives
                          ? port_.api->Irecv(data + done, n, partner, tag, port_.comm, &request)
                          : port_.api->Isend(data + done, n, partner, tag, port_.comm, &request);
    if (error != 0) {
      Fail(error, lane);
      break;
    }
    active_.push_back({request, id, lane});
    ++remaining_.back();
  }
  return id;
}

bool MpiTransfers::WaitForProgress() {
  std::optional<WaitPacer> pacer;  // made when first needed
  while (failure_.ok() && !active_.empty() && !Advance()) {
    if (Aborted()) break;
    if (backoff_.next_sleep_ns() > 0) {
      if (!pacer.has_value()) pacer.emplace();
      if (!GoesOn(&*pacer)) break;
    }
    backoff_.Pause();
  }
  backoff_.Found();
  return failure_.ok();
}

bool MpiTransfers::Wait(TransferId id) {
  while (failure_.ok() && !done(id)) (void)WaitForProgress();
  return failure_.ok();
}

bool MpiTransfers::Wait(TransferId begin, TransferId end) {
  for (TransferId t = begin; t < end && failure_.ok(); ++t) (void)Wait(t);
  return failure_.ok();
}

// Looks at the oldest message of each lane, and at those behind it once it is done: MPI delivers
// them in that order, and each look may cost a system call.
bool MpiTransfers::Advance() {
  ++looks_;
  size_t kept = 0;
  for (size_t i = 0; i < active_.size(); ++i) {
    const Active active = active_[i];
    int64_t& looked = looked_[active.lane.index()];
    int done = 0;
    if (failure_.ok() && looked != looks_) {
      const int error = port_.api->Test(&active_[i].request, &done);
      if (error != 0) {
        Fail(error, active.lane);
        continue;  // MPI has given the request up
      }
    }
    if (done == 0) {
      looked = looks_;
      active_[kept++] = active_[i];
      continue;
    }
    --remaining_[static_cast<size_t>(active.id)];
  }
  const bool progress = kept < active_.size();
  active_.resize(kept);
  return progress && failure_.ok();
}

// Asks the monitor where it is time to.
bool MpiTransfers::GoesOn(WaitPacer* pacer) {
  if (!pacer->Due()) return true;
  tfhvd::Wait wait;
  const std::string call = std::string("MPI ") + what_;
  wait.call = call.c_str();
  for (const Active& active : active_) {
    wait.ranks.push_back(port_.members[static_cast<size_t>(active.lane.peer)]);
  }
  std::sort(wait.ranks.begin(), wait.ranks.end());
  wait.ranks.erase(std::unique(wait.ranks.begin(), wait.ranks.end()), wait.ranks.end());
  wait.seconds = pacer->waited();
  failure_ = on_wait_(wait);
  return failure_.ok();
}

void MpiTransfers::Fail(int error, const Lane& lane) {
  failure_ = MessageFailed(*port_.api, error, what_, port_.members[static_cast<size_t>(port_.rank)],
                           lane.receives ? "receiving from" : "sending to",
                           port_.members[static_cast<size_t>(lane.peer)]);
}

bool MpiTransfers::Aborted() {
  if (!aborted_.load(std::memory_order_acquire)) return false;
  const MutexLock lock(&mutex_);
  if (failure_.ok()) failure_ = abort_reason_;
  return true;
}

void MpiTransfers::Abort(const Status& why) {
  const MutexLock lock(&mutex_);
  if (!abort_reason_.ok()) return;
  abort_reason_ = why;
  aborted_.store(true, std::memory_order_release);
}

}  // namespace tfhvd
