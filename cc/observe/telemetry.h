// Telemetry: what an engine records of its work, as one object: the timeline, the flight record,
// the counts, and which gradients were finite.
//
// Any thread. Lives as long as the engine that gives it out.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/base/status.h"
#include "cc/comm/topology.h"
#include "cc/flow/finite_vote.h"
#include "cc/flow/metrics.h"
#include "cc/flow/observer.h"
#include "cc/flow/process_set_table.h"
#include "cc/observe/finite_watch.h"
#include "cc/observe/flight_record.h"
#include "cc/observe/listeners.h"
#include "cc/observe/metrics.h"
#include "cc/observe/timeline.h"

namespace tfhvd {

class Telemetry {
 public:
  // Starts the timeline that the settings ask for. `sets` must outlive this object.
  Telemetry(const Config& config, const Log& log, const Topology& topology,
            const ProcessSetTable* sets);

  // Records from now on what becomes of every entry; this rank's part only (observe/timeline.h).
  Status StartTimeline(const std::string& path, bool mark_cycles) {
    return timeline_.Start(path, mark_cycles);
  }

  // Ends that and closes the file; nothing happens if nothing is recorded.
  Status StopTimeline() { return timeline_.Stop(); }

  // The descriptor of the record of the last entries (observe/flight_record.h); -1 if the system
  // has no such memory.
  int flight_record() const { return record_.file(); }

  // Notes in the flight record, and for the watch of gradients, the position of the training:
  // `step` steps of epoch `epoch` (from 1) are done.
  void NotePosition(int64_t epoch, int64_t step);

  // Notes in the flight record that this process watches for itself whether the job hangs, and can
  // be relied on to say so for so long.
  void NoteWatch(std::chrono::nanoseconds lasting) { record_.Watched(lasting); }

  // The sizes that this rank's gradients have had.
  GradientSizes* gradient_sizes() { return finite_watch_.sizes(); }

  // Notes whether the gradients of a step were finite. InvalidArgument if the job must end for
  // that.
  Status NoteGradients(const SharedGradients& gradients, const FoundNotFinite& own,
                       const Votes& together);

  // The counts up to now.
  EngineMetrics metrics() const { return metrics_.snapshot(); }

  // All of them that follow entries along the data path.
  Observer* observer() { return &listeners_; }

 private:
  const ProcessSetTable* const sets_;  // Not owned.
  // Each provides its own synchronisation.
  Timeline timeline_;
  FlightRecord record_;
  FiniteWatch finite_watch_;
  Metrics metrics_;
  Listeners listeners_;
};

}  // namespace tfhvd
