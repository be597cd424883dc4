#include "cc/flow/process_set_table.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace tfhvd {
namespace {

// As long as a generation has at most this many sets, its numbers are used by no other generation.
constexpr int32_t kSetsOfGeneration = 1 << 16;
constexpr int32_t kGenerations = 1 << 15;

int32_t FirstId(int generation) { return generation % kGenerations * kSetsOfGeneration; }

}  // namespace

ProcessSetTable::ProcessSetTable(int size, int generation)
    : first_id_(FirstId(generation)), next_id_(first_id_ + 1) {
  std::vector<int> everyone(static_cast<size_t>(size));
  std::iota(everyone.begin(), everyone.end(), 0);
  Put(0, std::move(everyone));
}

ProcessSetTable::Members ProcessSetTable::Find(int32_t id) const {
  MutexLock lock(&mutex_);
  const auto found = sets_.find(id);
  return found == sets_.end() ? nullptr : found->second;
}

Status ProcessSetTable::WhyMissing(int32_t id) const {
  const std::string name = "process set " + std::to_string(id);
  if (id < first_id_ || id - first_id_ >= kSetsOfGeneration) {
    return Status::Aborted(name +
                           " ended when ranks were lost, or came: ranks have other numbers since. "
                           "Make it anew, on all ranks: hvd.add_process_set(...).");
  }
  return Status::InvalidArgument(
      "there is no such process set. Received: " + name +
      ". Expected: one that hvd.add_process_set has added, and that was not removed since.");
}

int32_t ProcessSetTable::IdOf(const std::vector<int>& members) const {
  MutexLock lock(&mutex_);
  for (const auto& [id, set] : sets_) {
    if (*set == members) return id;
  }
  return kNone;
}

int32_t ProcessSetTable::NextId() const {
  MutexLock lock(&mutex_);
  return next_id_;
}

void ProcessSetTable::Put(int32_t id, std::vector<int> members) {
  MutexLock lock(&mutex_);
  sets_[id] = std::make_shared<const std::vector<int>>(std::move(members));
  next_id_ = std::max(next_id_, id + 1);
}

void ProcessSetTable::Remove(int32_t id) {
  MutexLock lock(&mutex_);
  sets_.erase(id);
}

std::map<int32_t, std::vector<int>> ProcessSetTable::All() const {
  MutexLock lock(&mutex_);
  std::map<int32_t, std::vector<int>> all;
  for (const auto& [id, set] : sets_) all[id] = *set;
  return all;
}

}  // namespace tfhvd
