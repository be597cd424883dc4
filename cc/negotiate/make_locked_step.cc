#include "cc/negotiate/make_locked_step.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tfhvd {
namespace {

// Sums the larger of input and result, over all tensors.
int64_t BytesOf(const ResponseCache::Record& record) {
  int64_t bytes = 0;
  for (size_t t = 0; t < record.request->tensors.size(); ++t) {
    const TensorSpec& spec = record.request->tensors[t];
    int64_t rows = 0;
    if (!record.decision.first_dims.empty()) {
      for (int64_t dim : record.decision.RowsOfRanks(t)) rows += dim;
    }
    bytes += std::max(NumElements(spec.shape) * ItemSize(spec.dtype), rows * RowBytes(spec));
  }
  return bytes;
}

}  // namespace

Status MakeLockedStep(const Agreement& agreement, const ResponseCache& known, LockedStep* step) {
  *step = LockedStep();
  step->term = agreement.lock_term;
  step->fusion = agreement.lock_fusion;
  for (const Bucket& ids : agreement.lock) {
    LockedStep::Bucket bucket;
    bucket.first = static_cast<int>(step->collectives.size());
    bucket.count = static_cast<int>(ids.size());
    for (const CacheId id : ids) {
      const ResponseCache::Record* const record = known.Get(id);
      if (record == nullptr) {
        return Status::Internal("a step was locked with a tensor that is not known, number " +
                                std::to_string(id));
      }
      LockedStep::Collective collective{record->request, {}};
      collective.decision.first_dims = record->decision.first_dims;
      collective.decision.weights = record->decision.weights;
      step->collectives.push_back(std::move(collective));
      bucket.bytes += BytesOf(*record);
    }
    step->buckets.push_back(bucket);
  }
  return Status::Ok();
}

}  // namespace tfhvd
