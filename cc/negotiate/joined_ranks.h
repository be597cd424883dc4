// JoinedRanks: which ranks have joined which process sets (hvd.join), so that collectives do not
// wait for them. A pure function of its input; part of the coordinator.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tfhvd {

class JoinedRanks {
 public:
  // `size`: the number of ranks.
  explicit JoinedRanks(int size) : size_(size) {}

  // Returns whether no rank has joined any process set.
  bool empty() const { return sets_.empty(); }

  // Records a join. `stops`: the rank asks the others to stop.
  void Join(int rank, int32_t process_set, bool stops);

  // Records that the rank has withdrawn its join.
  void Withdraw(int rank, int32_t process_set);

  // Ends the join of a process set that all ranks have joined; returns the rank that joined last.
  // REQUIRES: some rank has joined it.
  int Finish(int32_t process_set);

  // Removes the joins of a process set, or all joins; returns whether there were any.
  bool Forget(int32_t process_set) { return sets_.erase(process_set) > 0; }
  bool ForgetAll();

  // Returns, by rank of the job, whether collectives of the process set do not wait for it: it has
  // joined the set, or the set of all ranks.
  std::vector<bool> Of(int32_t process_set) const;

  // Returns whether one of these ranks asks the others to stop.
  bool AskToStop(int32_t process_set) const;

 private:
  struct Joined {
    std::vector<bool> ranks;  // by rank of the job
    int last = 0;
    bool stops = false;
  };

  const int size_;
  std::unordered_map<int32_t, Joined> sets_;  // with at least one joined rank
};

}  // namespace tfhvd
