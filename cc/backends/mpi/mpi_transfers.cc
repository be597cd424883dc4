#include "cc/backends/mpi/mpi_transfers.h"

#include <algorithm>
#include <utility>

#include "cc/backends/mpi/mpi_error.h"

namespace tfhvd {

MpiTransfers::MpiTransfers(MpiPort port)
    : Transfers(port.members, port.rank),
      port_(std::move(port)),
      queues_(2 * kChannels * port_.members.size()) {}

// MPI cancels receives that no message has matched; other receives, and sends, end when the peer
// participates, if it still does.
void MpiTransfers::TakeBack() {
  for (Queue* const queue : busy_) {
    queue->rest.clear();
    if (!queue->lane.receives) continue;
    for (Posted& message : queue->posted) (void)port_.api->Cancel(&message.request);
  }
  ForgetIdle();
}

bool MpiTransfers::Settle() {
  for (Queue* const queue : busy_) {
    std::deque<Posted>& posted = queue->posted;
    const auto settled = [this](Posted& message) {
      int done = 0;
      const int error = port_.api->Test(&message.request, &done);
      return error != 0 || done != 0;
    };
    posted.erase(std::remove_if(posted.begin(), posted.end(), settled), posted.end());
  }
  ForgetIdle();
  return busy_.empty();
}

void MpiTransfers::Start(TransferId id, const Lane& lane, char* data, int64_t bytes) {
  std::unique_ptr<Queue>& queue = queues_[lane.index()];
  if (queue == nullptr) queue.reset(new Queue{lane, {}, {}});
  if (queue->empty()) busy_.push_back(queue.get());
  queue->rest.push_back({id, data, bytes});
  Add(id);  // the rest, until all of it is posted
  PostMore(queue.get());
}

void MpiTransfers::PostMore(Queue* queue) {
  const Lane& lane = queue->lane;
  const int partner = member(lane.peer);
  const int tag = port_.tag + static_cast<int>(lane.channel);
  while (!failed() && !queue->rest.empty() && queue->posted.size() < kMpiWindow) {
    Rest& rest = queue->rest.front();
    const int n = static_cast<int>(std::min(kMessageBytes, rest.bytes));
    MpiHandle request = 0;
    const int error = lane.receives
                          ? port_.api->Irecv(rest.data, n, partner, tag, port_.comm, &request)
                          : port_.api->Isend(rest.data, n, partner, tag, port_.comm, &request);
    if (error != 0) return FailWith(error, lane);
    queue->posted.push_back({request, rest.id});
    Add(rest.id);
    rest.data += n;
    rest.bytes -= n;
    if (rest.bytes > 0) continue;
    Take(rest.id);
    queue->rest.pop_front();
  }
}

// Polls the oldest message of each lane, and the next one when that is done: MPI delivers them in
// this order, and each poll may cost a system call.
bool MpiTransfers::Advance() {
  bool progress = false;
  bool idle = false;
  for (Queue* const queue : busy_) {
    progress = TakeDone(queue) || progress;
    PostMore(queue);
    idle = idle || queue->empty();
  }
  if (idle) ForgetIdle();
  return progress && !failed();
}

// Returns whether any message was done.
bool MpiTransfers::TakeDone(Queue* queue) {
  bool any = false;
  while (!failed() && !queue->posted.empty()) {
    Posted& oldest = queue->posted.front();
    int done = 0;
    const int error = port_.api->Test(&oldest.request, &done);
    if (error == 0 && done == 0) break;
    if (error != 0) {
      FailWith(error, queue->lane);  // MPI has released the request
    } else {
      Take(oldest.id);
      any = true;
    }
    queue->posted.pop_front();
  }
  return any;
}

void MpiTransfers::ForgetIdle() {
  busy_.erase(
      std::remove_if(busy_.begin(), busy_.end(), [](Queue* queue) { return queue->empty(); }),
      busy_.end());
}

std::vector<int> MpiTransfers::peers() const {
  std::vector<int> found;
  for (const Queue* const queue : busy_) found.push_back(queue->lane.peer);
  return found;
}

void MpiTransfers::FailWith(int error, const Lane& lane) {
  Fail(MessageFailed(*port_.api, error, what(), member(rank()),
                     lane.receives ? "receiving from" : "sending to", member(lane.peer)));
}

}  // namespace tfhvd
