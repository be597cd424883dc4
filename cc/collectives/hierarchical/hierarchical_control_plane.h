// HierarchicalControlPlane: the negotiation's messages in two levels. The first rank of each host
// is its leader. Ranks write to their leader; leaders and rank 0 (itself a leader) write to each
// other. So rank 0 sends and receives one message for each host, not for each rank. Votes need no
// rank 0: leaders exchange them (hierarchical_votes.h). See cc/comm/control_plane.h for the
// contract; in addition:
//
// - A leader keeps the announcements of its host's ranks for up to kBatchingWindow, until it has
//   one of each, and sends them in one envelope.
// - A leader takes an agreement when its host's ranks can have it without its help, or a moment
//   later: in a collective it makes progress with messages only from time to time.
// - Messages make progress only while the leader's engine calls this object, so that a stopped
//   leader makes its whole host seem missing. Only an alarm needs no leader of the sender: every
//   rank sends it to the leaders of the other hosts, and through the leader to its own host.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/backoff.h"
#include "cc/collectives/hierarchical/envelope.h"
#include "cc/collectives/hierarchical/hierarchical_votes.h"
#include "cc/collectives/hierarchical/host_layout.h"
#include "cc/comm/control_plane.h"

namespace tfhvd {

class HierarchicalControlPlane : public ControlPlane {
 public:
  // How long a leader holds an agreement back for a rank of its host that does not read.
  static constexpr std::chrono::milliseconds kFlushLimit{10};

  // `local`: among the ranks of this host, in their order; it has votes on all hosts or on none.
  // `across`: among all ranks, opened by a World; only leaders use it. Wake and the messages of
  // `local` end a Wait; `across` is polled.
  HierarchicalControlPlane(HostLayout layout, int rank, std::unique_ptr<ControlPlane> local,
                           std::unique_ptr<ControlPlane> across,
                           std::chrono::nanoseconds flush_limit = kFlushLimit);

  int rank() const override { return rank_; }
  int size() const override { return layout_.size(); }
  int route() const override {
    return leads() ? 0 : layout_.ranks_of[static_cast<size_t>(host_)][0];
  }

  Status Send(int to, std::string bytes) override;
  void Alarm(const std::string& bytes) override;
  Status Receive(std::optional<Message>* message) override;
  bool Flushed() override;
  void Wait(std::chrono::nanoseconds timeout, bool expecting) override;
  void Wake() override { local_->Wake(); }
  VoteBoard* votes() override { return votes_.get(); }

 private:
  using Clock = std::chrono::steady_clock;

  // How long the announcement of a host's rank waits for the others of that host.
  static constexpr std::chrono::microseconds kBatchingWindow{50};
  // The longest sleep between two polls of the other hosts, while an answer is expected or not.
  static constexpr long kKeenSleepNs = 200000;
  static constexpr long kIdleSleepNs = 250000000;

  bool leads() const { return local_->rank() == 0; }
  void Keep(int host, int rank, std::string bytes);
  bool EveryoneAnnounced() const;
  Status Post();
  Status TakeFromHost();
  Status TakeFromOthers();
  Status ExchangeVotes();
  Status Open(const std::string& bytes);
  void Deliver(int from, std::string bytes);
  void PassAlarmOn(int from, const std::string& bytes);

  const HostLayout layout_;
  const int rank_;
  const int host_;
  const std::chrono::nanoseconds flush_limit_;
  const std::unique_ptr<ControlPlane> local_;
  const std::unique_ptr<ControlPlane> across_;
  const std::unique_ptr<HierarchicalVotes> votes_;  // null if a host's ranks cannot vote

  // Of a leader: the unsent messages, by host on rank 0, elsewhere only for rank 0's host.
  std::vector<Envelope> outgoing_;
  std::vector<bool> announced_;  // by local rank: whether it has announced, since all had
  Clock::time_point kept_since_;
  std::deque<Message> inbox_;     // for this rank
  Clock::time_point held_since_;  // arrival of its first message
  bool held_ = false;             // the inbox is held back for now
  bool raised_alarm_ = false;  // in this rank or one of its host: `across_` may have more to send
  Status failure_;             // found by Flushed, returned by the next Send or Receive
  Backoff keen_{kKeenSleepNs};
  Backoff idle_backoff_{kIdleSleepNs, Backoff::kSleepAtOnce};
};

}  // namespace tfhvd
