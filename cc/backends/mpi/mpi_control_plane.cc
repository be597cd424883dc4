#include "cc/backends/mpi/mpi_control_plane.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "cc/backends/mpi/mpi_error.h"

namespace tfhvd {

MpiControlPlane::MpiControlPlane(const MpiApi* api, MpiHandle comm, int tag, int rank, int size)
    : api_(api), comm_(comm), tag_(tag), rank_(rank), size_(size) {}

// Does not call MPI any more: a call could move data of a failed collective into freed memory.
MpiControlPlane::~MpiControlPlane() {
  if (sent_.empty() && arriving_.empty()) return;
  auto* const left = new std::list<Transfer>(std::move(sent_));
  left->splice(left->end(), arriving_);
}

Status MpiControlPlane::Send(int to, std::string bytes) {
  TFHVD_RETURN_IF_ERROR(Push());
  if (bytes.size() > static_cast<size_t>(INT_MAX)) {
    return Status::InvalidArgument(
        "A control message is too long for MPI: rank " + std::to_string(rank_) + " sends rank " +
        std::to_string(to) + " a message about its tensors. Received: " +
        std::to_string(bytes.size()) + " bytes. Expected: at most " + std::to_string(INT_MAX) +
        ". Submit fewer tensors at once, with shorter names.");
  }
  backoff_.Reset();
  idle_.Reset();
  sent_.push_back({to, std::move(bytes), 0});
  Transfer& transfer = sent_.back();
  // This process may end as soon as an alarm is sent. An MPI that reports ended processes drops
  // their messages that the receiver has not taken yet.
  const auto send = IsAlarm(transfer.bytes) ? api_->Issend : api_->Isend;
  const int error = send(transfer.bytes.data(), static_cast<int>(transfer.bytes.size()), to, tag_,
                         comm_, &transfer.request);
  if (error == 0) return Status::Ok();
  sent_.pop_back();
  return Failed(error, "sending to", to);
}

Status MpiControlPlane::Receive(std::optional<Message>* message) {
  message->reset();
  TFHVD_RETURN_IF_ERROR(Push());
  if (arriving_.empty()) {
    int found = 0;
    int from = 0;
    int bytes = 0;
    const int error = api_->Iprobe(kMpiAnySource, tag_, comm_, &found, &from, &bytes);
    if (error != 0) return ProbeFailed(error);
    if (found == 0) return Status::Ok();
    arriving_.push_back({from, std::string(static_cast<size_t>(bytes), '\0'), 0});
    Transfer& transfer = arriving_.back();
    const int failed = api_->Irecv(&transfer.bytes[0], bytes, from, tag_, comm_, &transfer.request);
    if (failed != 0) {
      arriving_.pop_back();
      return Failed(failed, "receiving from", from);
    }
  }
  Transfer& transfer = arriving_.front();
  int done = 0;
  const int error = api_->Test(&transfer.request, &done);
  if (error != 0) {
    const int from = transfer.peer;
    arriving_.pop_front();
    return Failed(error, "receiving from", from);
  }
  if (done == 0) return Status::Ok();
  *message = Message{transfer.peer, std::move(transfer.bytes)};
  arriving_.pop_front();
  backoff_.Reset();
  idle_.Reset();
  return Status::Ok();
}

void MpiControlPlane::Wait(std::chrono::nanoseconds timeout, bool expecting) {
  Backoff& backoff = expecting ? backoff_ : idle_;
  const std::chrono::nanoseconds sleep(backoff.next_sleep_ns());
  if (sleep.count() == 0) return backoff.Pause();
  waker_.WaitFor(std::min(timeout, sleep));
  backoff.Lengthen();
}

bool MpiControlPlane::Flushed() {
  (void)Push();
  return sent_.empty();
}

Status MpiControlPlane::Push() {
  for (auto transfer = sent_.begin(); transfer != sent_.end();) {
    int done = 0;
    const int error = api_->Test(&transfer->request, &done);
    if (error != 0 && failure_.ok()) failure_ = Failed(error, "sending to", transfer->peer);
    transfer = error != 0 || done != 0 ? sent_.erase(transfer) : std::next(transfer);
  }
  return failure_;
}

Status MpiControlPlane::Failed(int error, const std::string& doing, int peer) const {
  return MessageFailed(*api_, error, "the negotiation", rank_, doing, peer);
}

// An MPI that reports failed processes does so for messages of any rank; a probe of each rank finds
// which one.
Status MpiControlPlane::ProbeFailed(int error) const {
  for (int peer = 0; peer < size_; ++peer) {
    int found = 0;
    int from = 0;
    int bytes = 0;
    const int of_peer = api_->Iprobe(peer, tag_, comm_, &found, &from, &bytes);
    if (of_peer != 0) return Failed(of_peer, "listening to", peer);
  }
  return Failed(error, "listening to", -1);
}

}  // namespace tfhvd
