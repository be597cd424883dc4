#include "cc/backends/mpi/mpi_transfers.h"

#include <algorithm>
#include <utility>

#include "cc/backends/mpi/mpi_error.h"

namespace tfhvd {

MpiTransfers::MpiTransfers(MpiPort port)
    : Transfers(port.members, port.rank),
      port_(std::move(port)),
      looked_(2 * kChannels * port_.members.size(), 0) {}

// MPI cancels receives that nothing has matched; the others, and sends, end when the peer takes
// part, if it still does.
void MpiTransfers::TakeBack() {
  for (Active& active : active_) {
    if (active.lane.receives) (void)port_.api->Cancel(&active.request);
  }
}

bool MpiTransfers::Settle() {
  for (size_t i = 0; i < active_.size();) {
    int done = 0;
    const int error = port_.api->Test(&active_[i].request, &done);
    if (error == 0 && done == 0) {
      ++i;
      continue;
    }
    active_[i] = active_.back();
    active_.pop_back();
  }
  return active_.empty();
}

void MpiTransfers::Start(TransferId id, const Lane& lane, char* data, int64_t bytes) {
  const int partner = member(lane.peer);
  const int tag = port_.tag + static_cast<int>(lane.channel);
  for (int64_t done = 0; done < bytes; done += kMessageBytes) {
    const int n = static_cast<int>(std::min(kMessageBytes, bytes - done));
    MpiHandle request = 0;
    const int error = lane.receives
                          ? port_.api->Irecv(data + done, n, partner, tag, port_.comm, &request)
                          : port_.api->Isend(data + done, n, partner, tag, port_.comm, &request);
    if (error != 0) return FailWith(error, lane);
    active_.push_back({request, id, lane});
    Add(id);
  }
}

// Looks at the oldest message of each lane, and at those behind it once it is done: MPI delivers
// them in that order, and each look may cost a system call.
bool MpiTransfers::Advance() {
  ++looks_;
  size_t kept = 0;
  for (size_t i = 0; i < active_.size(); ++i) {
    const Active active = active_[i];
    int64_t& looked = looked_[active.lane.index()];
    int done = 0;
    if (!failed() && looked != looks_) {
      const int error = port_.api->Test(&active_[i].request, &done);
      if (error != 0) {
        FailWith(error, active.lane);
        continue;  // MPI has given the request up
      }
    }
    if (done == 0) {
      looked = looks_;
      active_[kept++] = active_[i];
      continue;
    }
    Take(active.id);
  }
  const bool progress = kept < active_.size();
  active_.resize(kept);
  return progress && !failed();
}

std::vector<int> MpiTransfers::peers() const {
  std::vector<int> found;
  for (const Active& active : active_) found.push_back(active.lane.peer);
  return found;
}

void MpiTransfers::FailWith(int error, const Lane& lane) {
  Fail(MessageFailed(*port_.api, error, what(), member(rank()),
                     lane.receives ? "receiving from" : "sending to", member(lane.peer)));
}

}  // namespace tfhvd
