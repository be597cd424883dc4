#include "cc/comm/world.h"

#include <algorithm>
#include <numeric>

#include "cc/base/types.h"

namespace tfhvd {

Status FindIndex(const World& world, const std::vector<int>& ranks, int* index) {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  if (sorted.empty() || twice || sorted.front() < 0 || sorted.back() >= world.size()) {
    return Status::InvalidArgument(
        "A job is made of processes that were started together. Received: comm=" + RankList(ranks) +
        ". Expected: different numbers from 0 to " + std::to_string(world.size() - 1) +
        ", at least one.");
  }
  const auto self = std::find(ranks.begin(), ranks.end(), world.rank());
  if (self == ranks.end()) {
    return Status::InvalidArgument(
        "This process is number " + std::to_string(world.rank()) + " of the " +
        std::to_string(world.size()) + " that were started, and not in the job. Received: comm=" +
        RankList(ranks) + ". Expected: a list with " + std::to_string(world.rank()) +
        ". Call hvd.init(comm=...) on the ranks that it names only; the others may make jobs of "
        "their own.");
  }
  *index = static_cast<int>(self - ranks.begin());
  return Status::Ok();
}

std::vector<int> RanksOf(const World& world) {
  std::vector<int> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Status FindMember(const World& world, const std::vector<int>& members, int* index) {
  const auto self = std::find(members.begin(), members.end(), world.rank());
  if (self == members.end()) {
    return Status::Internal(
        "Rank " + std::to_string(world.rank()) +
        " opens a communicator that it does not belong to. Received: " + RankList(members) + ".");
  }
  *index = static_cast<int>(self - members.begin());
  return Status::Ok();
}

}  // namespace tfhvd
