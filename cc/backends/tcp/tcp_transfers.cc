#include "cc/backends/tcp/tcp_transfers.h"

#include <utility>

namespace tfhvd {

TcpTransfers::TcpTransfers(TcpPort port)
    : Transfers(port.members, port.rank), port_(std::move(port)) {}

TcpTransfers::~TcpTransfers() {
  port_.mesh->TakeBack(this);
  for (uint32_t channel = 0; port_.closes_tag && channel < kChannels; ++channel) {
    port_.mesh->Close(port_.context, port_.tag + channel);
  }
}

void TcpTransfers::Start(TransferId id, const Lane& lane, char* data, int64_t bytes) {
  Add(id);
  active_[id] = lane.peer;
  const TcpPlace place{member(lane.peer), port_.context,
                       port_.tag + static_cast<uint32_t>(lane.channel)};
  const TcpTransfer transfer{data, bytes, this, id};
  if (lane.receives) {
    port_.mesh->Receive(place, transfer);
  } else {
    port_.mesh->Send(place, transfer);
  }
}

void TcpTransfers::OnDone(int64_t id) {
  active_.erase(id);
  Take(id);
  moved_ = true;
}

void TcpTransfers::OnError(int64_t id, const Status& why) {
  active_.erase(id);
  Fail(why);
}

// Returns true also if a message completed during a Sleep: the waiting call may have to act before
// any other message can complete.
bool TcpTransfers::Advance() {
  if (!moved_) port_.mesh->Progress(std::chrono::nanoseconds(0));
  return std::exchange(moved_, false) && !failed();
}

void TcpTransfers::Sleep(std::chrono::nanoseconds most, Backoff* backoff) {
  port_.mesh->Progress(most);
  backoff->Lengthen();
}

std::vector<int> TcpTransfers::peers() const {
  std::vector<int> found;
  for (const auto& [id, peer] : active_) found.push_back(peer);
  return found;
}

void TcpTransfers::TakeBack() {
  port_.mesh->TakeBack(this);
  active_.clear();
}

void TcpTransfers::Abort(const Status& why) {
  Transfers::Abort(why);
  port_.mesh->Wake();
}

}  // namespace tfhvd
