#include "cc/negotiate/check_entry.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cc/negotiate/agree.h"

namespace tfhvd {
namespace {

// Returns the error in the number of rows that an alltoall sends to each of `size` ranks, or "".
std::string FaultOfSplits(const Entry& entry, const std::string& where, int64_t size) {
  const Shape& shape = entry.request->tensors[0].shape;
  const int64_t rows = shape[0];
  const std::vector<int64_t>& splits = entry.extras().splits;
  if (splits.empty()) {
    if (rows % size == 0) return "";
    return where + " cannot give each of " + std::to_string(size) +
           " ranks the same number of rows. Received: a tensor of shape " + ShapeString(shape) +
           ". Expected: a first dimension that " + std::to_string(size) +
           " divides, or splits=..., the rows for each rank.";
  }
  int64_t sum = 0;
  bool valid = static_cast<int64_t>(splits.size()) == size;
  for (int64_t n : splits) {
    valid = valid && n >= 0 && n <= rows;
    sum += valid ? n : 0;
  }
  if (valid && sum == rows) return "";
  return where + " got splits that do not fit. Received: " + ShapeString(splits) +
         " for a tensor of shape " + ShapeString(shape) + ". Expected: " + std::to_string(size) +
         " numbers, 0 or above, with the sum " + std::to_string(rows) + ".";
}

}  // namespace

Status CheckEntry(const ProcessSetTable& sets, int rank, Entry* entry) {
  const Request& q = *entry->request;
  const auto where = [&q, rank] { return Describe(q) + " on rank " + std::to_string(rank); };
  const ProcessSetTable::Members members = sets.Find(q.key.process_set);
  if (members == nullptr) {
    const Status why = sets.WhyMissing(q.key.process_set);
    return {why.code(), where() + " is not possible: " + why.message()};
  }
  if (!std::binary_search(members->begin(), members->end(), rank)) {
    return Status::InvalidArgument(
        where() + ": this rank is not in the process set. Received: process set " +
        std::to_string(q.key.process_set) + " of ranks " + RankList(*members) +
        ". Expected: a call on these ranks only (if process_set.included(): ...).");
  }
  if (q.kind == Collective::kAllToAll && !q.tensors.empty() && !q.tensors[0].shape.empty()) {
    std::string fault = FaultOfSplits(*entry, where(), static_cast<int64_t>(members->size()));
    if (!fault.empty()) {
      Request faulty = q;  // others may hold the request
      faulty.fault = Status::InvalidArgument(std::move(fault));
      entry->request = SharedRequest(std::move(faulty));
    }
  }
  return Status::Ok();
}

}  // namespace tfhvd
