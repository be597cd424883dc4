// CoordinatorServer: connects rank 0's coordinator with the ranks: announcements come in,
// agreements go out. Rank 0's negotiator is a client like the others, through a loopback channel.
//
// The coordinator never waits: a rank that does not read its messages delays only the collectives
// that need it. Used by the thread that runs the engine.
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
  // `channel` must outlive this object. REQUIRES: it is the channel of rank 0. `may_lock`: whether
  // the ranks can vote.
  CoordinatorServer(const Config& config, const Log& log, const Topology& topology,
                    MessageChannel* channel, bool may_lock);
  ~CoordinatorServer();

  // Returns rank 0's channel to the coordinator. Lives as long as the server.
  MessageChannel* loopback();

  void SetObserver(Observer* observer) { coordinator_.SetObserver(observer); }
  void WaitsFrom(double now) { coordinator_.WaitsFrom(now); }  // see Tally

  // Reads the messages that have arrived, and sends the answers. Sets `progress` to true if there
  // was work. An error means that the job has failed.
  Status Step(double now, bool* progress);

  // See Coordinator.
  bool awaits_leave_of(int rank) const { return coordinator_.awaits_leave_of(rank); }

  // Returns whether a message is likely to arrive soon.
  bool expecting() const { return coordinator_.waiting() || !held_.empty(); }
  // Returns when Step has work even if nothing arrives.
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
  std::deque<std::string> held_;  // for rank 0; wait until the others' have left
  double held_since_ = 0.0;
};

}  // namespace tfhvd
