#include "cc/negotiate/joined_ranks.h"

#include <algorithm>

namespace tfhvd {

void JoinedRanks::Join(int rank, int32_t process_set, bool stops) {
  Joined& joined = sets_[process_set];
  joined.ranks.resize(static_cast<size_t>(size_), false);
  joined.ranks[static_cast<size_t>(rank)] = true;
  joined.last = rank;
  joined.stops = joined.stops || stops;
}

void JoinedRanks::Withdraw(int rank, int32_t process_set) {
  const auto joined = sets_.find(process_set);
  if (joined == sets_.end()) return;
  std::vector<bool>& ranks = joined->second.ranks;
  ranks[static_cast<size_t>(rank)] = false;
  if (std::find(ranks.begin(), ranks.end(), true) == ranks.end()) sets_.erase(joined);
}

int JoinedRanks::Finish(int32_t process_set) {
  const int last = sets_[process_set].last;
  sets_.erase(process_set);
  return last;
}

bool JoinedRanks::ForgetAll() {
  const bool some = !sets_.empty();
  sets_.clear();
  return some;
}

std::vector<bool> JoinedRanks::Of(int32_t process_set) const {
  std::vector<bool> ranks(static_cast<size_t>(size_), false);
  for (const int32_t id : {0, process_set}) {
    const auto joined = sets_.find(id);
    if (joined == sets_.end()) continue;
    for (size_t r = 0; r < ranks.size(); ++r) ranks[r] = ranks[r] || joined->second.ranks[r];
  }
  return ranks;
}

bool JoinedRanks::AskToStop(int32_t process_set) const {
  return std::any_of(sets_.begin(), sets_.end(), [process_set](const auto& joined) {
    return (joined.first == 0 || joined.first == process_set) && joined.second.stops;
  });
}

}  // namespace tfhvd
