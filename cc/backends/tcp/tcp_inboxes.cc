#include "cc/backends/tcp/tcp_inboxes.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

namespace tfhvd {
namespace {

// Returns the error of ranks with different lengths for one transfer: their collectives are in
// different orders, which the negotiation rules out, so it is a bug of tfhvd.
Status UnlikeLengths(const TcpPlace& place, int64_t sent, int64_t expected) {
  return Status::Internal("rank " + std::to_string(place.peer) + " has sent " +
                          std::to_string(sent) + " bytes where " + std::to_string(expected) +
                          " were expected");
}

void Finish(const TcpTransfer& transfer) { transfer.owner->OnDone(transfer.id); }

}  // namespace

bool TcpInboxes::Match(const TcpPlace& from, const TcpTransfer& transfer) {
  const auto box = boxes_.find(from);
  if (box == boxes_.end()) return false;
  std::deque<std::shared_ptr<Frame>>& early = box->second.early;
  const auto free = std::find_if(early.begin(), early.end(),
                                 [](const auto& frame) { return !frame->transfer.has_value(); });
  if (free == early.end()) return false;
  Frame& frame = **free;
  if (frame.bytes != transfer.bytes) {
    transfer.owner->OnError(transfer.id, UnlikeLengths(from, frame.bytes, transfer.bytes));
    return true;
  }
  frame.transfer = transfer;
  if (!frame.whole) return true;
  std::memcpy(transfer.data, frame.kept.get(), static_cast<size_t>(frame.bytes));
  early.erase(free);
  Finish(transfer);
  return true;
}

std::shared_ptr<TcpInboxes::Frame> TcpInboxes::Begin(const TcpPlace& from, int64_t bytes) {
  auto frame = std::make_shared<Frame>();
  frame->place = from;
  frame->bytes = bytes;
  if (closed_.count({from.context, from.tag}) > 0) {
    coming_.push_back(frame);
    return frame;
  }
  Box& box = boxes_[from];
  if (box.posted.empty()) {
    frame->kept.reset(new (std::nothrow) char[static_cast<size_t>(bytes)]);
    if (frame->kept == nullptr) throw std::bad_alloc();  // a sanitizer's `new` would not throw
    frame->target = frame->kept.get();
    box.early.push_back(frame);
  } else {
    const TcpTransfer transfer = box.posted.front();
    box.posted.pop_front();
    if (transfer.bytes == bytes) {
      frame->transfer = transfer;
      frame->target = transfer.data;
    } else {
      transfer.owner->OnError(transfer.id, UnlikeLengths(from, bytes, transfer.bytes));
    }
  }
  coming_.push_back(frame);
  return frame;
}

void TcpInboxes::End(const std::shared_ptr<Frame>& frame) {
  coming_.erase(std::find(coming_.begin(), coming_.end(), frame));
  frame->whole = true;
  if (!frame->transfer.has_value()) return;
  if (frame->kept != nullptr) {
    std::memcpy(frame->transfer->data, frame->kept.get(), static_cast<size_t>(frame->bytes));
    std::deque<std::shared_ptr<Frame>>& early = boxes_[frame->place].early;
    early.erase(std::find(early.begin(), early.end(), frame));
  }
  Finish(*frame->transfer);
}

void TcpInboxes::TakeBack(const TcpOwner* owner) {
  for (auto& [place, box] : boxes_) {
    std::deque<TcpTransfer>& posted = box.posted;
    posted.erase(std::remove_if(posted.begin(), posted.end(),
                                [owner](const auto& t) { return t.owner == owner; }),
                 posted.end());
  }
  for (const std::shared_ptr<Frame>& frame : coming_) {
    if (!frame->transfer.has_value() || frame->transfer->owner != owner) continue;
    frame->transfer.reset();
    if (frame->kept == nullptr) frame->target = nullptr;
  }
}

void TcpInboxes::Close(uint64_t context, uint32_t tag) {
  closed_.insert({context, tag});
  for (auto box = boxes_.begin(); box != boxes_.end();) {
    const bool over = box->first.context == context && box->first.tag == tag;
    box = over ? boxes_.erase(box) : std::next(box);
  }
  for (const std::shared_ptr<Frame>& frame : coming_) {
    if (frame->place.context == context && frame->place.tag == tag) {
      frame->transfer.reset();
      frame->target = nullptr;
    }
  }
}

void TcpInboxes::Fail(int peer, const Status& why) {
  std::vector<TcpTransfer> failed;
  for (const std::shared_ptr<Frame>& frame : coming_) {
    if (frame->place.peer == peer && frame->transfer.has_value()) {
      failed.push_back(*frame->transfer);
    }
  }
  coming_.erase(std::remove_if(coming_.begin(), coming_.end(),
                               [peer](const auto& frame) { return frame->place.peer == peer; }),
                coming_.end());
  for (auto& [place, box] : boxes_) {
    if (place.peer != peer) continue;
    failed.insert(failed.end(), box.posted.begin(), box.posted.end());
    box.posted.clear();
    std::deque<std::shared_ptr<Frame>>& early = box.early;
    early.erase(
        std::remove_if(early.begin(), early.end(), [](const auto& frame) { return !frame->whole; }),
        early.end());
  }
  for (const TcpTransfer& transfer : failed) transfer.owner->OnError(transfer.id, why);
}

}  // namespace tfhvd
