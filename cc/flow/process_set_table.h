// ProcessSetTable: which process sets there are, by number: 0 is all ranks of the job. A set is a
// list of ranks, ascending.
//
// Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "cc/base/mutex.h"

namespace tfhvd {

class ProcessSetTable {
 public:
  using Members = std::shared_ptr<const std::vector<int>>;
  static constexpr int32_t kNone = -1;

  explicit ProcessSetTable(int size);

  // Null where there is no such set.
  Members Find(int32_t id) const TFHVD_EXCLUDES(mutex_);

  // The number of the set of exactly these ranks, or kNone.
  int32_t IdOf(const std::vector<int>& members) const TFHVD_EXCLUDES(mutex_);

  // A number that no set has had so far.
  int32_t NextId() const TFHVD_EXCLUDES(mutex_);

  void Put(int32_t id, std::vector<int> members) TFHVD_EXCLUDES(mutex_);
  void Remove(int32_t id) TFHVD_EXCLUDES(mutex_);

  std::map<int32_t, std::vector<int>> All() const TFHVD_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<int32_t, Members> sets_ TFHVD_GUARDED_BY(mutex_);
  int32_t next_id_ TFHVD_GUARDED_BY(mutex_) = 0;
};

}  // namespace tfhvd
