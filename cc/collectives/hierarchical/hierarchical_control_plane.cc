#include "cc/collectives/hierarchical/hierarchical_control_plane.h"

#include <algorithm>
#include <utility>

namespace tfhvd {

HierarchicalControlPlane::HierarchicalControlPlane(HostLayout layout, int rank,
                                                   std::unique_ptr<ControlPlane> local,
                                                   std::unique_ptr<ControlPlane> across,
                                                   std::chrono::nanoseconds flush_limit)
    : layout_(std::move(layout)),
      rank_(rank),
      host_(layout_.host_of[static_cast<size_t>(rank)]),
      flush_limit_(flush_limit),
      local_(std::move(local)),
      across_(std::move(across)),
      votes_(local_->votes() == nullptr ? nullptr
                                        : std::make_unique<HierarchicalVotes>(
                                              &layout_, host_, local_->votes(), across_.get())),
      outgoing_(static_cast<size_t>(layout_.hosts())),
      announced_(static_cast<size_t>(local_->size()), false) {}

Status HierarchicalControlPlane::Send(int to, std::string bytes) {
  if (!failure_.ok()) return failure_;
  if (!leads()) return local_->Send(0, std::move(bytes));
  const int host = layout_.host_of[static_cast<size_t>(to)];
  if (rank_ != 0) {
    Keep(host, rank_, std::move(bytes));
  } else if (host == host_) {
    return local_->Send(layout_.local_of[static_cast<size_t>(to)], std::move(bytes));
  } else {
    outgoing_[static_cast<size_t>(host)].Add(to, std::move(bytes));
  }
  return Status::Ok();
}

void HierarchicalControlPlane::Alarm(const std::string& bytes) {
  raised_alarm_ = true;
  for (int host = 0; host < layout_.hosts(); ++host) {
    const int leader = layout_.ranks_of[static_cast<size_t>(host)][0];
    if (host != host_) (void)across_->Send(leader, bytes);
  }
  local_->Alarm(bytes);
}

// Passes an alarm from a rank of this host, or from another host, to all others of this host.
void HierarchicalControlPlane::PassAlarmOn(int from, const std::string& bytes) {
  for (const int rank : layout_.ranks_of[static_cast<size_t>(host_)]) {
    if (rank == rank_ || rank == from) continue;
    (void)local_->Send(layout_.local_of[static_cast<size_t>(rank)], bytes);
  }
  inbox_.push_front({from, bytes});
}

void HierarchicalControlPlane::Deliver(int from, std::string bytes) {
  if (inbox_.empty()) held_since_ = Clock::now();
  inbox_.push_back({from, std::move(bytes)});
}

// Keeps a message for rank 0 from a rank of this host.
void HierarchicalControlPlane::Keep(int host, int rank, std::string bytes) {
  Envelope& envelope = outgoing_[static_cast<size_t>(host)];
  if (envelope.empty()) kept_since_ = Clock::now();
  envelope.Add(rank, std::move(bytes));
  announced_[static_cast<size_t>(layout_.local_of[static_cast<size_t>(rank)])] = true;
}

bool HierarchicalControlPlane::EveryoneAnnounced() const {
  return std::find(announced_.begin(), announced_.end(), false) == announced_.end();
}

Status HierarchicalControlPlane::Post() {
  for (size_t host = 0; host < outgoing_.size(); ++host) {
    if (outgoing_[host].empty()) continue;
    const std::string bytes = outgoing_[host].Encode();
    outgoing_[host] = Envelope();
    TFHVD_RETURN_IF_ERROR(across_->Send(layout_.ranks_of[host][0], bytes));
    keen_.Reset();
    idle_backoff_.Reset();
  }
  // A rank that comes late finds that the others are marked, and its message does not wait.
  if (EveryoneAnnounced()) announced_.assign(announced_.size(), false);
  return Status::Ok();
}

Status HierarchicalControlPlane::TakeFromHost() {
  const std::vector<int>& ranks = layout_.ranks_of[static_cast<size_t>(host_)];
  while (true) {
    std::optional<Message> message;
    TFHVD_RETURN_IF_ERROR(local_->Receive(&message));
    if (!message.has_value()) return Status::Ok();
    const int from = ranks[static_cast<size_t>(message->from)];
    if (IsAlarm(message->bytes)) {
      PassAlarmOn(from, message->bytes);
    } else if (rank_ == 0) {
      Deliver(from, std::move(message->bytes));
    } else {
      Keep(0, from, std::move(message->bytes));
    }
  }
}

Status HierarchicalControlPlane::TakeFromOthers() {
  while (true) {
    std::optional<Message> message;
    TFHVD_RETURN_IF_ERROR(across_->Receive(&message));
    if (!message.has_value()) return Status::Ok();
    keen_.Reset();
    idle_backoff_.Reset();
    if (IsAlarm(message->bytes)) {
      PassAlarmOn(message->from, message->bytes);
    } else if (votes_ != nullptr && IsVote(message->bytes)) {
      TFHVD_RETURN_IF_ERROR(votes_->Take(message->bytes));
    } else {
      TFHVD_RETURN_IF_ERROR(Open(message->bytes));
    }
  }
  return Status::Ok();
}

Status HierarchicalControlPlane::ExchangeVotes() {
  if (votes_ == nullptr) return Status::Ok();
  TFHVD_RETURN_IF_ERROR(votes_->Exchange());
  if (!votes_->TakeSent()) return Status::Ok();
  keen_.Reset();
  idle_backoff_.Reset();
  return Status::Ok();
}

Status HierarchicalControlPlane::Open(const std::string& bytes) {
  Envelope envelope;
  TFHVD_RETURN_IF_ERROR(Envelope::Decode(bytes, size(), &envelope));
  for (const Envelope::Group& group : envelope.groups()) {
    for (const int rank : group.ranks) {
      if (rank_ == 0) {
        Deliver(rank, group.bytes);
      } else if (rank == rank_) {
        Deliver(0, group.bytes);
      } else {
        TFHVD_RETURN_IF_ERROR(
            local_->Send(layout_.local_of[static_cast<size_t>(rank)], group.bytes));
      }
    }
  }
  return Status::Ok();
}

Status HierarchicalControlPlane::Receive(std::optional<Message>* message) {
  message->reset();
  if (!failure_.ok()) return failure_;
  if (!leads()) return local_->Receive(message);
  if (inbox_.empty() || held_) {
    TFHVD_RETURN_IF_ERROR(TakeFromHost());
    TFHVD_RETURN_IF_ERROR(TakeFromOthers());
    TFHVD_RETURN_IF_ERROR(ExchangeVotes());
    if (rank_ == 0 || EveryoneAnnounced() || Clock::now() - kept_since_ >= kBatchingWindow)
      TFHVD_RETURN_IF_ERROR(Post());
  }
  if (inbox_.empty()) return Status::Ok();
  held_ = rank_ != 0 && !local_->Flushed() && !IsAlarm(inbox_.front().bytes) &&
          Clock::now() - held_since_ < flush_limit_;
  if (held_) return Status::Ok();
  *message = std::move(inbox_.front());
  inbox_.pop_front();
  return Status::Ok();
}

bool HierarchicalControlPlane::Flushed() {
  if (!leads()) return local_->Flushed() && (!raised_alarm_ || across_->Flushed());
  const Status posted = Post();
  if (failure_.ok()) failure_ = posted;
  const bool here = local_->Flushed();
  return across_->Flushed() && here;
}

void HierarchicalControlPlane::Wait(std::chrono::nanoseconds timeout, bool expecting) {
  if (!leads()) return local_->Wait(timeout, expecting);
  const bool keeps = rank_ != 0 && !outgoing_[0].empty();
  if (keeps) timeout = std::min<std::chrono::nanoseconds>(timeout, kBatchingWindow);
  Backoff& backoff = expecting ? keen_ : idle_backoff_;
  const std::chrono::nanoseconds sleep(backoff.next_sleep_ns());
  if (sleep.count() == 0) return backoff.Pause();
  local_->Wait(std::min(timeout, sleep), false);
  backoff.Lengthen();
}

}  // namespace tfhvd
