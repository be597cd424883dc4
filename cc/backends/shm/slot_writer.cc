#include "cc/backends/shm/slot_writer.h"

#include <algorithm>
#include <cstring>

#include "cc/numeric/cpu.h"

namespace tfhvd {

void SlotWriter::Add(const char* from, int64_t bytes) {
  if (stores_ == StoreIn::kCaches) {
    if (bytes > 0) std::memcpy(at_, from, static_cast<size_t>(bytes));
    at_ += bytes;
    return;
  }
  const auto room = static_cast<int64_t>(near_.size());
  while (bytes > 0) {
    if (gathered_ == 0 && bytes >= room) {
      const int64_t whole = bytes / room * room;
      StreamCopy(at_, from, whole);
      at_ += whole;
      from += whole;
      bytes -= whole;
      continue;
    }
    const int64_t part = std::min(room - gathered_, bytes);
    std::memcpy(near_.data() + gathered_, from, static_cast<size_t>(part));
    gathered_ += part;
    from += part;
    bytes -= part;
    if (gathered_ == room) Flush();
  }
}

void SlotWriter::End() {
  if (gathered_ > 0) Flush();
}

void SlotWriter::Flush() {
  StreamCopy(at_, near_.data(), gathered_);
  at_ += gathered_;
  gathered_ = 0;
}

}  // namespace tfhvd
