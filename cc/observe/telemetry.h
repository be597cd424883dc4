// Telemetry: an engine's records of its work, as one object: the timeline, the flight record, the
// counts, and which gradients were finite.
//
// Any thread. Lives as long as its engine.
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

  // Records every entry from now on; only this rank's part (observe/timeline.h).
  Status StartTimeline(const std::string& path, bool mark_cycles) {
    return timeline_.Start(path, mark_cycles);
  }

  // Ends the recording and closes the file; does nothing if there is no recording.
  Status StopTimeline() { return timeline_.Stop(); }

  // Returns the descriptor of the flight record (observe/flight_record.h); -1 if the system has no
  // such memory.
  int flight_record() const { return record_.file(); }

  // Records the position of the training, for the flight record and the watch of gradients: `step`
  // steps of epoch `epoch` (from 1) are done.
  void NotePosition(int64_t epoch, int64_t step);

  // Records in the flight record that this process has a hang monitor, which is reliable for so
  // long.
  void NoteWatch(std::chrono::nanoseconds lasting) { record_.Watched(lasting); }

  // The past sizes of this rank's gradients.
  GradientSizes* gradient_sizes() { return finite_watch_.sizes(); }

  // Records whether the gradients of a step were finite. Returns InvalidArgument if the job must
  // end for that reason.
  Status NoteGradients(const SharedGradients& gradients, const FoundNotFinite& own,
                       const Votes& together);

  // Returns the counts so far.
  EngineMetrics metrics() const { return metrics_.snapshot(); }

  // Returns the observer that passes events of the data path to all of them.
  Observer* observer() { return &listeners_; }

 private:
  const ProcessSetTable* const sets_;  // Not owned.
  // Each provides its own synchronization.
  Timeline timeline_;
  FlightRecord record_;
  FiniteWatch finite_watch_;
  Metrics metrics_;
  Listeners listeners_;
};

}  // namespace tfhvd
