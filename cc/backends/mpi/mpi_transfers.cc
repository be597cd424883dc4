#include "cc/backends/mpi/mpi_transfers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cc/backends/mpi/mpi_error.h"
#include "cc/base/backoff.h"
#include "cc/base/types.h"

namespace tfhvd {
namespace {

constexpr int64_t kLargestMessage = 1 << 30;  // bytes: MPI counts in int

}  // namespace

MpiTransfers::MpiTransfers(MpiPort port, std::function<Status(const tfhvd::Wait&)> on_wait)
    : port_(std::move(port)), on_wait_(std::move(on_wait)) {}

Status MpiTransfers::Begin(const char* what) {
  what_ = what;
  remaining_.clear();
  (void)Aborted();
  return failure_;
}

// MPI cancels receives that nothing has matched; the others, and sends, end when the peer takes
// part, if it still does.
Status MpiTransfers::End() {
  if (Wait(0, next())) return Status::Ok();
  for (Active& active : active_) {
    if (active.receives) (void)port_.api->Cancel(&active.request);
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

MpiTransfers::TransferId MpiTransfers::Send(int to, const void* data, int64_t bytes) {
  return Start(to, static_cast<char*>(const_cast<void*>(data)), bytes, false);
}

MpiTransfers::TransferId MpiTransfers::Receive(int from, void* data, int64_t bytes) {
  return Start(from, static_cast<char*>(data), bytes, true);
}

MpiTransfers::TransferId MpiTransfers::Start(int peer, char* data, int64_t bytes, bool receives) {
  const TransferId id = next();
  remaining_.push_back(0);
  const int partner = port_.members[static_cast<size_t>(peer)];
  for (int64_t done = 0; done < bytes && failure_.ok(); done += kLargestMessage) {
    const int n = static_cast<int>(std::min(kLargestMessage, bytes - done));
    MpiHandle request = 0;
    const int error =
        receives ? port_.api->Irecv(data + done, n, partner, port_.tag, port_.comm, &request)
                 : port_.api->Isend(data + done, n, partner, port_.tag, port_.comm, &request);
    if (error != 0) {
      Fail(error, receives ? "receiving from" : "sending to", peer);
      break;
    }
    active_.push_back({request, id, peer, receives});
    ++remaining_.back();
  }
  return id;
}

bool MpiTransfers::Wait(TransferId id) {
  Backoff backoff;
  std::optional<WaitPacer> pacer;  // since the last progress; made when first needed
  while (failure_.ok() && remaining_[static_cast<size_t>(id)] > 0) {
    if (Advance()) {
      backoff.Reset();
      pacer.reset();
      continue;
    }
    if (Aborted()) break;
    if (backoff.next_sleep_ns() > 0) {
      if (!pacer.has_value()) pacer.emplace();
      if (!GoesOn(&*pacer)) break;
    }
    backoff.Pause();
  }
  return failure_.ok();
}

bool MpiTransfers::Wait(TransferId begin, TransferId end) {
  for (TransferId t = begin; t < end && failure_.ok(); ++t) (void)Wait(t);
  return failure_.ok();
}

bool MpiTransfers::Advance() {
  bool progress = false;
  for (size_t i = 0; i < active_.size() && failure_.ok();) {
    Active& active = active_[i];
    int done = 0;
    const int error = port_.api->Test(&active.request, &done);
    if (error != 0) {
      const int peer = active.peer;
      const bool receives = active.receives;
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
      Fail(error, receives ? "receiving from" : "sending to", peer);
      return false;
    }
    if (done == 0) {
      ++i;
      continue;
    }
    --remaining_[static_cast<size_t>(active.id)];
    active = active_.back();
    active_.pop_back();
    progress = true;
  }
  return progress;
}

// Asks the monitor where it is time to.
bool MpiTransfers::GoesOn(WaitPacer* pacer) {
  if (!pacer->Due()) return true;
  tfhvd::Wait wait;
  const std::string call = std::string("MPI ") + what_;
  wait.call = call.c_str();
  for (const Active& active : active_) {
    wait.ranks.push_back(port_.members[static_cast<size_t>(active.peer)]);
  }
  std::sort(wait.ranks.begin(), wait.ranks.end());
  wait.ranks.erase(std::unique(wait.ranks.begin(), wait.ranks.end()), wait.ranks.end());
  wait.seconds = pacer->waited();
  failure_ = on_wait_(wait);
  return failure_.ok();
}

void MpiTransfers::Fail(int error, const char* doing, int peer) {
  failure_ = MessageFailed(*port_.api, error, what_, port_.members[static_cast<size_t>(port_.rank)],
                           doing, port_.members[static_cast<size_t>(peer)]);
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
