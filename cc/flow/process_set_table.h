// ProcessSetTable: the process sets, by number: 0 is all ranks of the job. A set is a list of
// ranks, ascending.
//
// The sets of an elastic job end with the generation that made them, because ranks have other
// numbers in the next one. No set of a later generation gets a number of an earlier one, so that a
// program that still uses the old set gets an error.
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

  // Returns null if there is no such set.
  Members Find(int32_t id) const TFHVD_EXCLUDES(mutex_);

  // Returns why Find returned null: kAborted for a set of another generation, kInvalidArgument for
  // one that was never added here, or was removed.
  Status WhyMissing(int32_t id) const;

  // Returns the number of the set of exactly these ranks, or kNone.
  int32_t IdOf(const std::vector<int>& members) const TFHVD_EXCLUDES(mutex_);

  // Returns a number that no set has had so far.
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
