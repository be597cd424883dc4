// CapacityMonitor: notices that a program repeats more collectives than there are numbers for
// (TFHVD_CACHE_CAPACITY), so that its steps may never be locked. A pure function of what it has
// seen; rank 0's coordinator feeds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "cc/flow/request.h"

namespace tfhvd {

class CapacityMonitor {
 public:
  // `capacity` 0: there are to be no numbers, and nothing is noticed.
  explicit CapacityMonitor(int64_t capacity) : capacity_(capacity) {}

  // A collective that may have a number was agreed, and had none. Once that is so a third time of
  // the same one, its numbers have gone to others: a warning, the only one ever; else "". The first
  // time is everyone's, and what does not come again needs no number.
  std::string SawWithoutNumber(const Key& key);

 private:
  std::string Warning() const;

  const int64_t capacity_;
  bool warned_ = false;
  std::unordered_map<size_t, int> times_;  // by the hash of a key: how often it had none
  int64_t again_ = 0;                      // how many had none more than once
};

}  // namespace tfhvd
