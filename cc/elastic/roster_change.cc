#include "cc/elastic/roster_change.h"

#include <algorithm>

namespace tfhvd {
namespace {

// Returns the ranks in `roster` whose processes are not in `other`.
std::vector<int> MissingIn(const Roster& other, const Roster& roster) {
  const std::vector<int>& members = other.members;
  std::vector<int> missing;
  for (int rank = 0; rank < roster.size(); ++rank) {
    const int member = roster.members[static_cast<size_t>(rank)];
    if (std::find(members.begin(), members.end(), member) == members.end()) missing.push_back(rank);
  }
  return missing;
}

// Returns text such as "rank 2 failed; ", or "" if there are no ranks.
std::string Said(const std::vector<int>& ranks, const char* of_one, const char* of_more) {
  if (ranks.empty()) return "";
  std::string numbers;
  for (const int rank : ranks) numbers += (numbers.empty() ? "" : ", ") + std::to_string(rank);
  return (ranks.size() == 1 ? "rank " + numbers + of_one : "ranks " + numbers + of_more) + "; ";
}

}  // namespace

RosterChange Compare(const Roster& before, const Roster& roster) {
  return {MissingIn(roster, before), MissingIn(before, roster)};
}

std::string Describe(const RosterChange& change, const Roster& roster) {
  return Said(change.lost, " failed", " failed") + Said(change.joined, " joins", " join") +
         "the job continues with " + std::to_string(roster.size()) +
         (roster.size() == 1 ? " rank" : " ranks") + " (generation " +
         std::to_string(roster.generation) + ").";
}

}  // namespace tfhvd
