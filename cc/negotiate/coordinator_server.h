// CoordinatorServer: what joins rank 0's coordinator to the ranks: announcements come in from
// them, agreements go out to them. Rank 0's own negotiator is a client like the others, by way of a
// loopback.
//
// The coordinator never waits: a rank that takes no messages holds up what it is needed for and
// nothing else. Used by who runs the engine.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/base/status.h"
#include "cc/comm/message_channel.h"
#include "cc/comm/topology.h"
#include "cc/flow/observer.h"
#include "cc/negotiate/coordinator.h"
#include "cc/tune/tuning_files.h"

namespace tfhvd {

class CoordinatorServer {
 public:
  // `channel` must outlive this object. REQUIRES: it is rank 0's. `may_lock`: whether the ranks can
  // vote.
  CoordinatorServer(const Config& config, const Log& log, const Topology& topology,
                    MessageChannel* channel, bool may_lock);
  ~CoordinatorServer();

  // What rank 0's negotiator speaks to the coordinator by. Lives as long as the server.
  MessageChannel* loopback();

  void SetObserver(Observer* observer) { coordinator_.SetObserver(observer); }
  void WaitsFrom(double now) { coordinator_.WaitsFrom(now); }  // see Tally

  // Takes what has come, and sends what follows from it. `progress` becomes true where anything
  // did. An error means that the job is lost.
  Status Step(double now, bool* progress);

  // See Coordinator.
  bool awaits_leave_of(int rank) const { return coordinator_.awaits_leave_of(rank); }

  // Whether a message is likely to come soon.
  bool expecting() const { return coordinator_.waiting() || !held_.empty(); }
  // When Step has something to do though nothing arrives.
  double wake_at() const;

 private:
  class Loopback;

  Status TakeMessages(double now, bool* progress);
  Status Send(double now, bool* progress);
  void HandOver(double now, bool* progress);

  const Log& log_;
  const Failpoints failpoints_;
  MessageChannel* const channel_;  // Not owned.
  TuningFiles tuning_files_;
  Coordinator coordinator_;
  const std::unique_ptr<Loopback> loopback_;
  std::deque<std::string> held_;  // for rank 0, which waits a little until the others' have left
  double held_since_ = 0.0;
};

}  // namespace tfhvd
