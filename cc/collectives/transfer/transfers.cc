#include "cc/collectives/transfer/transfers.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tfhvd {

Status Transfers::Begin(const char* what) {
  what_ = what;
  remaining_.clear();
  (void)Aborted();
  return failure_;
}

Status Transfers::End() {
  if (Wait(0, next())) return Status::Ok();
  TakeBack();
  (void)Settle();
  return failure_;
}

Transfers::TransferId Transfers::Send(int to, const void* data, int64_t bytes, Channel channel) {
  return Post({to, false, channel}, static_cast<char*>(const_cast<void*>(data)), bytes);
}

Transfers::TransferId Transfers::Receive(int from, void* data, int64_t bytes, Channel channel) {
  return Post({from, true, channel}, static_cast<char*>(data), bytes);
}

Transfers::TransferId Transfers::Post(const Lane& lane, char* data, int64_t bytes) {
  const TransferId id = next();
  remaining_.push_back(0);
  if (bytes > 0 && failure_.ok()) Start(id, lane, data, bytes);
  return id;
}

bool Transfers::WaitForProgress() {
  std::optional<WaitPacer> pacer;  // made when first needed
  while (failure_.ok() && active() && !Advance()) {
    if (Aborted()) break;
    if (backoff_.next_sleep_ns() == 0) {
      backoff_.Pause();
      continue;
    }
    if (!pacer.has_value()) pacer.emplace();
    if (!Continues(&*pacer)) break;
    Sleep(pacer->interval(), &backoff_);
  }
  backoff_.Found();
  return failure_.ok();
}

void Transfers::Sleep(std::chrono::nanoseconds /*most*/, Backoff* backoff) { backoff->Pause(); }

bool Transfers::Wait(TransferId id) {
  while (failure_.ok() && !done(id)) (void)WaitForProgress();
  return failure_.ok();
}

bool Transfers::Wait(TransferId begin, TransferId end) {
  for (TransferId t = begin; t < end && failure_.ok(); ++t) (void)Wait(t);
  return failure_.ok();
}

// Calls the monitor when it is time; returns whether to continue to wait.
bool Transfers::Continues(WaitPacer* pacer) {
  if (!urgent() && !pacer->Due()) return true;
  tfhvd::Wait wait;
  const std::string call = std::string(title()) + " " + what_;
  wait.call = call.c_str();
  for (const int peer : peers()) wait.ranks.push_back(member(peer));
  std::sort(wait.ranks.begin(), wait.ranks.end());
  wait.ranks.erase(std::unique(wait.ranks.begin(), wait.ranks.end()), wait.ranks.end());
  wait.seconds = pacer->waited();
  Fail(on_wait_(wait));  // an earlier failure stays
  return failure_.ok();
}

bool Transfers::Aborted() {
  if (!aborted_.load(std::memory_order_acquire)) return false;
  const MutexLock lock(&mutex_);
  Fail(abort_reason_);
  return true;
}

void Transfers::Abort(const Status& why) {
  const MutexLock lock(&mutex_);
  if (!abort_reason_.ok()) return;
  abort_reason_ = why;
  aborted_.store(true, std::memory_order_release);
}

}  // namespace tfhvd
