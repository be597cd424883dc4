#include "cc/backends/shm/abort_note.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace tfhvd {

void AbortNote::Leave(const Status& why) {
  uint32_t state = kEmpty;
  if (!state_.compare_exchange_strong(state, kBeingWritten)) return;
  code_ = static_cast<uint32_t>(why.code());
  length_ = static_cast<uint32_t>(std::min(why.message().size(), sizeof text_));
  std::memcpy(text_, why.message().data(), length_);
  state_.store(kWritten, std::memory_order_release);
}

Status AbortNote::Read() const {
  if (state_.load(std::memory_order_acquire) != kWritten) return Status::Ok();
  return Status(static_cast<StatusCode>(code_), std::string(text_, length_));
}

}  // namespace tfhvd
