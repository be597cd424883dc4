#include "cc/negotiate/lock_settings.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cc/base/fingerprint.h"

namespace tfhvd {
namespace {

uint64_t FingerprintOf(const std::string& text) { return Fingerprint(text.data(), text.size()); }

// Leaves out the name: frameworks number their names differently in each job.
uint64_t FingerprintOf(const Request& request) {
  std::string text = std::to_string(static_cast<int>(request.kind)) + " " +
                     std::to_string(static_cast<int>(request.device)) + " " +
                     std::to_string(static_cast<int>(request.reduction.op));
  for (const TensorSpec& tensor : request.tensors) {
    text += " " + std::to_string(static_cast<int>(tensor.dtype)) + ":";
    for (const int64_t dim : tensor.shape) text += std::to_string(dim) + ",";
  }
  return FingerprintOf(text);
}

// Returns the effect of settings: the sizes of the buckets, how many tensors may share a call, and
// the most bytes of such a call.
StepTuner::Outcome OutcomeOf(const StepSettings& settings, const std::vector<Bucket>& buckets,
                             const CacheIds& ids) {
  StepTuner::Outcome outcome;
  int64_t fused = 0;
  int64_t most_bytes = 0;
  for (const Bucket& bucket : buckets) {
    outcome.push_back(static_cast<int64_t>(bucket.size()));
    int64_t bytes = 0;
    for (const CacheId id : bucket) {
      const Request& request = ids.Find(id)->request;
      for (const TensorSpec& tensor : request.tensors) {
        const int64_t size = NumElements(tensor.shape) * ItemSize(tensor.dtype);
        if (size >= AloneFrom(settings.fusion, request.device)) continue;
        ++fused;
        bytes += size;
      }
    }
    most_bytes = std::max(most_bytes, bytes);
  }
  outcome.push_back(fused);
  outcome.push_back(std::min(settings.fusion.threshold, most_bytes));
  return outcome;
}

}  // namespace

LockSettings::LockSettings(Options options) : given_(options.given), machine_(options.machine) {
  if (options.autotune) tuner_.emplace(given_, std::move(options.remembered));
}

// Does not depend on the order of the collectives, nor on their names: ranks may agree on them in
// another order each time, and a program may give new names.
StepId LockSettings::IdOf(const std::vector<StepItem>& step, const CacheIds& ids) const {
  uint64_t sum = 0;
  for (const StepItem& item : step) sum += FingerprintOf(ids.Find(item.id)->request);
  return FingerprintOf(std::to_string(machine_) + " " + std::to_string(sum));
}

StepTuner::Block LockSettings::Next(const StepDetector& detector, const CacheIds& ids) {
  if (!tuner_.has_value()) return {given_, 0};
  return tuner_->Next(IdOf(detector.step(), ids), [&](const StepSettings& settings) {
    return OutcomeOf(settings, detector.Schedule(settings.bucket_bytes), ids);
  });
}

std::vector<Tuner::News> LockSettings::TakeNews() {
  return tuner_.has_value() ? tuner_->TakeNews() : std::vector<Tuner::News>();
}

}  // namespace tfhvd
