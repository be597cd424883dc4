// SlotWriter: writes pieces into a slot one after the other, through the caches or past them. What
// goes past the caches does so in whole lines: pieces too small for that are put together first, in
// memory of the writer's own that stays in its nearest cache.
#pragma once

#include <array>
#include <cstdint>

#include "cc/numeric/reduction.h"

namespace tfhvd {

class SlotWriter {
 public:
  // What small pieces are put together in; kept by the caller, for it is used again and again.
  using Near = std::array<char, 16 << 10>;

  // `slot` begins on a cache line; both outlive this object.
  SlotWriter(char* slot, StoreIn stores, Near* near) : at_(slot), stores_(stores), near_(*near) {}

  void Add(const char* from, int64_t bytes);

  // After the last piece: everything is visible to others before a later release store.
  void End();

 private:
  void Flush();

  char* at_;
  const StoreIn stores_;
  Near& near_;
  int64_t gathered_ = 0;  // bytes in near_
};

}  // namespace tfhvd
