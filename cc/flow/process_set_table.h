// ProcessSetTable: which process sets there are, by number: 0 is all ranks of the job. A set is a
// list of ranks, ascending.
//
// The sets end with the generation of an elastic job that made them, for ranks have other numbers
// in the next one. No set of a later generation has the number of an earlier one's, so that a
// program that still uses it is told so.
//
// Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"

namespace tfhvd {

class ProcessSetTable {
 public:
  using Members = std::shared_ptr<const std::vector<int>>;
  static constexpr int32_t kNone = -1;

  explicit ProcessSetTable(int size, int generation = 0);

  // Null where there is no such set.
  Members Find(int32_t id) const TFHVD_EXCLUDES(mutex_);

  // Why Find gave null: kAborted for a set of another generation, kInvalidArgument for one that was
  // never added here, or removed.
  Status WhyMissing(int32_t id) const;

  // The number of the set of exactly these ranks, or kNone.
  int32_t IdOf(const std::vector<int>& members) const TFHVD_EXCLUDES(mutex_);

  // A number that no set has had so far.
  int32_t NextId() const TFHVD_EXCLUDES(mutex_);

  void Put(int32_t id, std::vector<int> members) TFHVD_EXCLUDES(mutex_);
  void Remove(int32_t id) TFHVD_EXCLUDES(mutex_);

  std::map<int32_t, std::vector<int>> All() const TFHVD_EXCLUDES(mutex_);

 private:
  const int32_t first_id_;  // of this generation
  mutable Mutex mutex_;
  std::map<int32_t, Members> sets_ TFHVD_GUARDED_BY(mutex_);
  int32_t next_id_ TFHVD_GUARDED_BY(mutex_);
};

}  // namespace tfhvd
