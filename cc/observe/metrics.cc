#include "cc/observe/metrics.h"

namespace tfhvd {

EngineMetrics Metrics::snapshot() const {
  EngineMetrics now;
  now.completed = completed_.value();  // read before the total that it is a part of
  now.failed = failed_.value();
  now.submitted = submitted_.value();
  now.tensors = tensors_.value();
  now.bytes = bytes_.value();
  now.calls = calls_.value();
  now.fused_tensors = fused_tensors_.value();
  now.locked_rounds = locked_rounds_.value();
  now.rounds = rounds_.value();
  for (size_t i = 0; i < kUnlockReasons; ++i) now.unlocked[i] = unlocked_[i].value();
  now.locked_steps = locked_steps_.value();
  now.inline_runs = inline_runs_.value();
  now.cache_hits = cache_hits_.value();
  now.cache_misses = cache_misses_.value();
  for (const Counter<double>& waited : waited_) now.waited.push_back(waited.value());
  now.waited_for_unknown = waited_for_unknown_.value();
  return now;
}

void Metrics::AgreedOn(const std::vector<Agreed>& together) {
  int64_t tensors = 0;
  int64_t bytes = 0;
  for (const Agreed& agreed : together) {
    if (agreed.entry.placeholder) continue;  // of other ranks only
    const Request& request = *agreed.entry.request;
    tensors += static_cast<int64_t>(request.tensors.size());
    bytes += BytesOf(request);
  }
  tensors_.Add(tensors);
  bytes_.Add(bytes);
  if (!together.empty()) rounds_.Add(1);
}

void Metrics::Done(EntryId entry, const Status& status) {
  if (entry == 0) return;  // another rank's
  (status.ok() ? completed_ : failed_).Add(1);
}

void Metrics::Carries(const Plan& plan) {
  calls_.Add(1);
  const size_t pieces = plan.pieces.size();
  if (pieces > 1) fused_tensors_.Add(static_cast<int64_t>(pieces));
}

void Metrics::Waited(int rank, double seconds) {
  const bool known = rank >= 0 && static_cast<size_t>(rank) < waited_.size();
  (known ? waited_[static_cast<size_t>(rank)] : waited_for_unknown_).Add(seconds);
}

}  // namespace tfhvd
