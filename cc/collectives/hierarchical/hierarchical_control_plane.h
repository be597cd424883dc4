// HierarchicalControlPlane: the negotiation's messages in two levels. The first rank of each host
// is its leader. Ranks write to their leader; leaders and rank 0 (itself one) write to each other.
// So rank 0 sends and takes one message a host, not one a rank. Votes need no rank 0: leaders tell
// them each other (hierarchical_votes.h). See cc/comm/control_plane.h for the contract; beyond it:
//
// - A leader keeps what its host's ranks announce for up to kBatchingWindow, until it has something
//   of each, and sends it on in one envelope.
// - A leader takes an agreement once its host's ranks can have it without its help, or a moment
//   later: in a collective it passes messages on from time to time only.
// - Messages move on only while the leader's engine makes calls here, so with a stopped leader its
//   whole host is missing. An alarm alone needs no leader of the sender's: it goes from every rank
//   to the leaders of the other hosts, and to its own host's by the leader.
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
  // `across`: among all ranks, opened by a World; leaders alone use it. Wake and the messages of
  // `local` end a Wait; `across` is looked at again and again.
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

  // How long what a host's ranks announce waits for the others of that host.
  static constexpr std::chrono::microseconds kBatchingWindow{50};
  // The longest sleep between two looks at the other hosts, while an answer is expected or not.
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
  const std::unique_ptr<HierarchicalVotes> votes_;  // null where a host's ranks cannot vote

  // A leader's. What has not been posted: by host on rank 0, elsewhere for rank 0's host alone.
  std::vector<Envelope> outgoing_;
  std::vector<bool> announced_;  // by local rank: whether it has, since all had
  Clock::time_point kept_since_;
  std::deque<Message> inbox_;     // for this rank
  Clock::time_point held_since_;  // the first of it came
  bool held_ = false;             // it is kept back for now
  bool raised_alarm_ = false;     // this rank, or one of its host: `across_` may have more to send
  Status failure_;                // found by Flushed, told by the next Send or Receive
  Backoff keen_{kKeenSleepNs};
  Backoff idle_backoff_{kIdleSleepNs, Backoff::kSleepAtOnce};
};

}  // namespace tfhvd
