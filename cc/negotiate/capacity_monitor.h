// CapacityMonitor: notices that a program repeats more collectives than there are numbers
// (TFHVD_CACHE_CAPACITY), so that its steps may never be locked. A pure function of its input; rank
// 0's coordinator feeds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "cc/flow/request.h"

namespace tfhvd {

class CapacityMonitor {
 public:
  // `capacity` 0: numbers are turned off, and the monitor does nothing.
  explicit CapacityMonitor(int64_t capacity) : capacity_(capacity) {}

  // Must be called when a collective that may have a number was agreed on without one, as each is
  // for the first time. Three such calls for one collective show that numbers are lacking: the
  // function then returns a warning, once; otherwise "".
  std::string SawWithoutNumber(const Key& key);

 private:
  std::string Warning() const;

  const int64_t capacity_;
  bool warned_ = false;
  std::unordered_map<size_t, int> times_;  // by the hash of a key: how often it had no number
  int64_t again_ = 0;                      // number of keys that repeatedly had none
};

}  // namespace tfhvd
