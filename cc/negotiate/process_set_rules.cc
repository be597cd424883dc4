#include "cc/negotiate/process_set_rules.h"

#include <algorithm>
#include <string>

namespace tfhvd {

std::vector<int> Ranks(const std::vector<int64_t>& members) {
  return {members.begin(), members.end()};
}

Status ProcessSetRemoved(const Key& key) {
  return Status::InvalidArgument("'" + key.name + "' is not possible: process set " +
                                 std::to_string(key.process_set) +
                                 " was removed. Use a process set that is still registered.");
}

Status CheckProcessSetChange(const ProcessSetTable& sets, const Request& request,
                             const std::vector<int>& absent, int size) {
  const bool add = request.kind == Collective::kAddProcessSet;
  if (!add && request.kind != Collective::kRemoveProcessSet) return Status::Ok();
  const std::vector<int> members = Ranks(request.members);
  const std::string received = " Received: a process set of ranks " + RankList(members) + ".";
  const bool valid =
      !members.empty() && members.front() >= 0 && members.back() < size &&
      std::adjacent_find(
          members.begin(), members.end(), [](int a, int b) { return a >= b; }) == members.end();
  if (!valid) {
    return Status::InvalidArgument("A process set is made of ranks of the job." + received +
                                   " Expected: different ranks from 0 to " +
                                   std::to_string(size - 1) + ", at least one.");
  }
  if (!absent.empty()) {
    return Status::InvalidArgument("Process sets cannot be changed while ranks " +
                                   RankList(absent) + " have joined." + received +
                                   " Change process sets before any rank calls hvd.join().");
  }
  const int32_t id = sets.IdOf(members);
  if (add && id != ProcessSetTable::kNone) {
    return Status::InvalidArgument("There is already a process set of these ranks, with number " +
                                   std::to_string(id) + "." + received +
                                   " Use the existing one, or name other ranks.");
  }
  if (!add && id <= 0) {
    return Status::InvalidArgument(
        (id == 0 ? "The process set of all ranks cannot be removed."
                 : "The process set cannot be removed, because there is none of these ranks.") +
        received + " Expected: a process set that is still registered.");
  }
  return Status::Ok();
}

}  // namespace tfhvd
