// JoinedRanks: which ranks have joined which process sets (hvd.join): collectives do not wait for
// them. A pure function of what was reported to it; part of the coordinator.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tfhvd {

class JoinedRanks {
 public:
  // Of a job of so many ranks.
  explicit JoinedRanks(int size) : size_(size) {}

  // Whether no rank has joined any process set.
  bool empty() const { return sets_.empty(); }

  // `stops`: the rank asks the others to stop.
  void Join(int rank, int32_t process_set, bool stops);

  // The rank has taken back that it joined.
  void Withdraw(int rank, int32_t process_set);

  // All ranks have joined the process set: none has any more. Returns which came last. REQUIRES:
  // somebody has joined it.
  int Finish(int32_t process_set);

  // None has joined the process set any more, or any; whether one had.
  bool Forget(int32_t process_set) { return sets_.erase(process_set) > 0; }
  bool ForgetAll();

  // Whose absence from a process set's collectives is excused, by rank of the job: who has joined
  // it, or the set of all ranks.
  std::vector<bool> Of(int32_t process_set) const;

  // Whether one of those asks the others to stop.
  bool AskToStop(int32_t process_set) const;

 private:
  struct Joined {
    std::vector<bool> ranks;  // by rank of the job
    int last = 0;
    bool stops = false;
  };

  const int size_;
  std::unordered_map<int32_t, Joined> sets_;  // those that somebody has joined
};

}  // namespace tfhvd
