// Mailboxes: the shared state of the control planes of an InprocGroup: for each rank a box of
// messages and a word to vote with; and one further word. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/base/waker.h"
#include "cc/comm/control_plane.h"

namespace tfhvd {

class Mailboxes {
 public:
  explicit Mailboxes(int size)
      : boxes_(static_cast<size_t>(size)), words_(static_cast<size_t>(size) + 1) {
    for (auto& box : boxes_) box = std::make_unique<Box>();
  }

  int size() const { return static_cast<int>(boxes_.size()); }

  // Puts the message into rank `to`'s box and wakes that rank.
  Status Put(int to, Message message) {
    Box& box = *boxes_[static_cast<size_t>(to)];
    {
      const MutexLock lock(&box.mutex);
      if (!box.aborted.ok()) return box.aborted;
      box.messages.push_back(std::move(message));
    }
    box.waker.Wake();
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

  // Returns the waker that wakes when a message arrives.
  Waker* waker(int rank) { return &boxes_[static_cast<size_t>(rank)]->waker; }

  // `index`: of a word, 0 to size().
  void Cast(int index, uint64_t word) { words_[static_cast<size_t>(index)].store(word); }
  uint64_t Word(int index) const { return words_[static_cast<size_t>(index)].load(); }

  void Abort(const Status& why) {
    for (auto& box : boxes_) {
      {
        const MutexLock lock(&box->mutex);
        if (box->aborted.ok()) box->aborted = why;
      }
      box->waker.Wake();
    }
  }

 private:
  struct Box {
    Mutex mutex;
    std::deque<Message> messages TFHVD_GUARDED_BY(mutex);
    Status aborted TFHVD_GUARDED_BY(mutex);
    Waker waker;
  };

  std::vector<std::unique_ptr<Box>> boxes_;
  std::vector<std::atomic<uint64_t>> words_;
};

}  // namespace tfhvd
