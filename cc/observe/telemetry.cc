#include "cc/observe/telemetry.h"

namespace tfhvd {

Telemetry::Telemetry(const Config& config, const Log& log, const Topology& topology,
                     const ProcessSetTable* sets)
    : sets_(sets),
      timeline_(topology.rank, topology.hosts[topology.rank]),
      record_(topology),
      finite_watch_(config.on_not_finite, config.on_outlier, log, topology.rank),
      metrics_(topology.size),
      listeners_({&record_, &metrics_, &timeline_}) {
  if (config.timeline.empty()) return;
  const Status status = timeline_.Start(config.timeline, config.timeline_mark_cycles);
  if (!status.ok()) log.Error(status.message());  // no reason to stop the training
}

void Telemetry::NotePosition(int64_t epoch, int64_t step) {
  record_.At(epoch, step);
  finite_watch_.At(epoch, step);
}

Status Telemetry::NoteGradients(const SharedGradients& gradients, const FoundNotFinite& own,
                                const Votes& together) {
  return finite_watch_.StepOver(gradients, own, together, sets_->Find(gradients.process_set));
}

}  // namespace tfhvd
