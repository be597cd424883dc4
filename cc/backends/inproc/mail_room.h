// MailRoom: one box of messages per rank, what the control planes of an InprocGroup share.
// Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/comm/control_plane.h"

namespace tfhvd {

class MailRoom {
 public:
  explicit MailRoom(int size) : boxes_(static_cast<size_t>(size)) {
    for (auto& box : boxes_) box = std::make_unique<Box>();
  }

  int size() const { return static_cast<int>(boxes_.size()); }

  // Puts the message into rank `to`'s box and calls its wake function.
  Status Put(int to, Message message) {
    Box& box = *boxes_[static_cast<size_t>(to)];
    {
      const MutexLock lock(&box.mutex);
      if (!box.aborted.ok()) return box.aborted;
      box.messages.push_back(std::move(message));
    }
    Wake(&box);
    return Status::Ok();
  }

  Status Take(int rank, std::optional<Message>* message) {
    Box& box = *boxes_[static_cast<size_t>(rank)];
    const MutexLock lock(&box.mutex);
    message->reset();
    if (!box.aborted.ok()) return box.aborted;
    if (box.messages.empty()) return Status::Ok();
    *message = std::move(box.messages.front());
    box.messages.pop_front();
    return Status::Ok();
  }

  // Waits for a call of the old function to end: afterwards it is not called again.
  void SetWake(int rank, std::function<void()> wake) {
    Box& box = *boxes_[static_cast<size_t>(rank)];
    const MutexLock lock(&box.wake_mutex);
    box.wake = std::move(wake);
  }

  void Abort(const Status& why) {
    for (auto& box : boxes_) {
      {
        const MutexLock lock(&box->mutex);
        if (box->aborted.ok()) box->aborted = why;
      }
      Wake(box.get());
    }
  }

 private:
  // Two locks, so that a wake function may take locks under which its owner calls Take.
  struct Box {
    Mutex mutex;
    std::deque<Message> messages TFHVD_GUARDED_BY(mutex);
    Status aborted TFHVD_GUARDED_BY(mutex);
    Mutex wake_mutex;
    std::function<void()> wake TFHVD_GUARDED_BY(wake_mutex);
  };

  void Wake(Box* box) {
    const MutexLock lock(&box->wake_mutex);
    if (box->wake) box->wake();
  }

  std::vector<std::unique_ptr<Box>> boxes_;
};

}  // namespace tfhvd
