// SlotWriter: writes pieces into a slot one after the other, through the caches or past them.
// Writes past the caches consist of whole lines: smaller pieces are collected first, in the
// writer's memory, which stays in the nearest cache.
#pragma once

#include <array>
#include <cstdint>

#include "cc/numeric/reduction.h"

namespace tfhvd {

class SlotWriter {
 public:
  // The memory in which small pieces are collected; the caller keeps it for reuse.
  using Near = std::array<char, 16 << 10>;

  // `slot` begins on a cache line; it and `near` must outlive this object.
  SlotWriter(char* slot, StoreIn stores, Near* near) : at_(slot), stores_(stores), near_(*near) {}

  void Add(const char* from, int64_t bytes);

  // Ends the writing: everything is visible to other ranks before a later release store.
  void End();

 private:
  void Flush();

  char* at_;
  const StoreIn stores_;
  Near& near_;
  int64_t gathered_ = 0;  // bytes in near_
};

}  // namespace tfhvd
