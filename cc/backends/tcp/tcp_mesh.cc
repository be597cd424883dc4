#include "cc/backends/tcp/tcp_mesh.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace tfhvd {
namespace {

// How often to check connections that are being made, which only make progress with time.
constexpr std::chrono::milliseconds kTick(50);
constexpr int kEvents = 64;

TcpCall CallTo(int peer, int rank, TcpTraffic traffic) {
  return {static_cast<uint32_t>(traffic), static_cast<uint32_t>(rank), static_cast<uint32_t>(peer)};
}

Status Failed(const char* call) {
  return Status::Internal(std::string(call) + " failed: " + std::strerror(errno));
}

}  // namespace

Status TcpMesh::Open(const TcpEndpoints& endpoints, std::unique_ptr<TcpMesh>* out,
                     const Failpoints& failpoints) {
  Fd listener(endpoints.listener);
  if (endpoints.token.size() != kTcpTokenBytes) {
    return Status::InvalidArgument("the job's token has " + std::to_string(endpoints.token.size()) +
                                   " bytes, not " + std::to_string(kTcpTokenBytes));
  }
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return Failed("epoll_create1");
  Fd waker(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!waker.valid()) return Failed("eventfd");
  out->reset(new TcpMesh(endpoints, std::move(epoll), std::move(waker), failpoints));
  TcpMesh* const mesh = out->get();
  TFHVD_RETURN_IF_ERROR(
      mesh->door_.Open(std::move(listener), endpoints.token, mesh->rank(), mesh->size()));
  mesh->Watch(mesh->door_.fd(), EPOLLIN, EPOLL_CTL_ADD);
  mesh->Watch(mesh->waker_.get(), EPOLLIN, EPOLL_CTL_ADD);
  return Status::Ok();
}

TcpMesh::TcpMesh(const TcpEndpoints& endpoints, Fd epoll, Fd waker, Failpoints failpoints)
    : failpoints_(std::move(failpoints)),
      rank_(endpoints.rank),
      epoll_(std::move(epoll)),
      waker_(std::move(waker)),
      on_message_([this](const TcpPlace& place, std::string bytes) {
        OnMessage(place, std::move(bytes));
      }) {
  const int size = static_cast<int>(endpoints.addresses.size());
  peers_.resize(static_cast<size_t>(size));
  watched_.resize(static_cast<size_t>(size * kTcpTraffics));
  for (int peer = 0; peer < size; ++peer) {
    const auto addresses = SplitAddresses(endpoints.addresses[static_cast<size_t>(peer)]);
    for (const TcpTraffic traffic : {TcpTraffic::kControl, TcpTraffic::kData}) {
      peers_[static_cast<size_t>(peer)].senders.emplace_back(
          endpoints.token, CallTo(peer, rank_, traffic), addresses);
    }
  }
}

void TcpMesh::Watch(int fd, uint32_t events, int operation) const {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  (void)epoll_ctl(epoll_.get(), operation, fd, &event);
}

void TcpMesh::Send(const TcpPlace& to, const TcpTransfer& transfer) {
  TcpSender& sender = SenderTo(to.peer, TcpTraffic::kData);
  if (sender.state() == TcpSender::State::kOver) {
    return transfer.owner->OnError(transfer.id, WhyOver(to.peer));
  }
  TcpHeader header;
  header.context = to.context;
  header.tag = to.tag;
  header.bytes = static_cast<uint64_t>(transfer.bytes);
  sender.Append(header, transfer);
  AdvanceSender(to.peer, TcpTraffic::kData, false);
  failpoints_.Hit(Failpoint::kDataSent);
}

void TcpMesh::Receive(const TcpPlace& from, const TcpTransfer& transfer) {
  if (inboxes_.Match(from, transfer)) return;
  const Status& over = peers_[static_cast<size_t>(from.peer)].sends_no_data;
  if (!over.ok()) return transfer.owner->OnError(transfer.id, over);
  inboxes_.Post(from, transfer);
}

void TcpMesh::TakeBack(const TcpOwner* owner) {
  inboxes_.TakeBack(owner);
  for (Peer& peer : peers_) peer.senders[static_cast<size_t>(TcpTraffic::kData)].TakeBack(owner);
}

Status TcpMesh::SendMessage(const TcpPlace& to, std::string bytes) {
  TcpSender& sender = SenderTo(to.peer, TcpTraffic::kControl);
  if (sender.state() == TcpSender::State::kOver) return WhyOver(to.peer);
  TcpHeader header;
  header.context = to.context;
  header.tag = to.tag;
  header.bytes = bytes.size();
  sender.Append(header, std::move(bytes));
  AdvanceSender(to.peer, TcpTraffic::kControl, false);
  return lost(to.peer);
}

std::optional<Message> TcpMesh::TakeMessage(uint64_t context, uint32_t plane) {
  const auto found = messages_.find({context, plane});
  if (found == messages_.end() || found->second.empty()) return std::nullopt;
  Message message = std::move(found->second.front());
  found->second.pop_front();
  --messages_waiting_;
  return message;
}

void TcpMesh::OnMessage(const TcpPlace& place, std::string bytes) {
  messages_[{place.context, place.tag}].push_back({place.peer, std::move(bytes)});
  ++messages_waiting_;
}

bool TcpMesh::has_message(uint64_t context, uint32_t plane) const {
  const auto found = messages_.find({context, plane});
  return found != messages_.end() && !found->second.empty();
}

bool TcpMesh::MessagesFlushed() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return peer.senders[static_cast<size_t>(TcpTraffic::kControl)].flushed();
  });
}

void TcpMesh::AdvanceSender(int peer, TcpTraffic traffic, bool readable) {
  TcpSender& sender = SenderTo(peer, traffic);
  const bool was_connecting = sender.state() == TcpSender::State::kConnecting;
  const Status status = sender.Advance(readable);
  if (was_connecting && sender.state() == TcpSender::State::kOpen) {
    failpoints_.Hit(Failpoint::kConnected);
  }
  if (!status.ok()) return Lose(peer, status.message());
  if (sender.state() == TcpSender::State::kOver) sender.Fail(WhyOver(peer));
  Rewatch(peer, traffic);
}

// Registers the sender's socket with epoll; it may have changed.
void TcpMesh::Rewatch(int peer, TcpTraffic traffic) {
  const TcpSender& sender = SenderTo(peer, traffic);
  Watched& watched = watched_[static_cast<size_t>(peer * kTcpTraffics + static_cast<int>(traffic))];
  const bool connects = sender.state() == TcpSender::State::kConnecting;
  if (connects) {
    connecting_.insert({peer, traffic});
  } else {
    connecting_.erase({peer, traffic});
  }
  const bool other = watched.serial != sender.serial();
  if (other && watched.fd >= 0) senders_.erase(watched.fd);  // closed: epoll has forgotten it
  const bool writes = sender.wants_to_write();
  if (sender.fd() >= 0 && (other || writes != watched.writes)) {
    senders_[sender.fd()] = {peer, traffic};
    Watch(sender.fd(), EPOLLIN | (writes ? EPOLLOUT : 0u), other ? EPOLL_CTL_ADD : EPOLL_CTL_MOD);
  }
  watched = {sender.fd(), sender.serial(), writes};
}

void TcpMesh::TakeGuests() {
  for (TcpDoor::Guest& guest : door_.Take()) {
    const int fd = guest.fd.get();
    receivers_[fd] = std::make_unique<TcpReceiver>(std::move(guest.fd), guest.peer, guest.traffic,
                                                   &inboxes_, &on_message_);
    Watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    failpoints_.Hit(Failpoint::kAccepted);
  }
}

void TcpMesh::AdvanceReceiver(TcpReceiver* receiver) {
  const TcpReceiver::End end = receiver->Advance();
  const int peer = receiver->peer();
  const bool data = receiver->traffic() == TcpTraffic::kData;
  if (end == TcpReceiver::End::kNone) return;
  const uint64_t announced = receiver->announced();
  receivers_.erase(receiver->fd());
  if (end == TcpReceiver::End::kTooLong) {
    Lose(peer, "it announced a frame of " + std::to_string(announced) +
                   " bytes, for which there is no memory here");
  }
  if (end == TcpReceiver::End::kLost) Lose(peer, "its connection has been closed");
  if (end == TcpReceiver::End::kBye && data) EndData(peer, WhyOver(peer));
}

Status TcpMesh::WhyOver(int peer) const {
  const Status& lost = peers_[static_cast<size_t>(peer)].lost;
  return lost.ok() ? Status::Aborted("rank " + std::to_string(peer) + " has left the job") : lost;
}

void TcpMesh::EndData(int peer, const Status& why) {
  Status& over = peers_[static_cast<size_t>(peer)].sends_no_data;
  if (over.ok()) over = why;
  inboxes_.Fail(peer, over);
}

// Records the failure of a peer. The bytes that it has sent before are still used.
void TcpMesh::Lose(int peer, const std::string& how) {
  Status& lost = peers_[static_cast<size_t>(peer)].lost;
  if (!lost.ok()) return;
  const std::string whom = "rank " + std::to_string(peer);
  lost = Status::Aborted("TCP lost " + whom + " on rank " + std::to_string(rank_) + ": " + how +
                         ". The process of " + whom +
                         " may have died, or its host may be cut off; its own output may say why.");
  for (const TcpTraffic traffic : {TcpTraffic::kControl, TcpTraffic::kData}) {
    SenderTo(peer, traffic).Fail(lost);
    Rewatch(peer, traffic);
  }
  for (auto each = receivers_.begin(); each != receivers_.end();) {
    const bool of_peer = each->second->peer() == peer;
    if (of_peer) (void)each->second->Advance();
    // No more bytes may be written to the memory of transfers that are about to fail.
    each = of_peer ? receivers_.erase(each) : std::next(each);
  }
  EndData(peer, lost);
}

void TcpMesh::Progress(std::chrono::nanoseconds most) {
  const bool by_time = !connecting_.empty() || door_.waits_for_time();
  const auto longest = by_time ? std::min<std::chrono::nanoseconds>(most, kTick) : most;
  const int64_t milliseconds = (longest.count() + 999999) / 1000000;
  epoll_event events[kEvents];
  const int count = epoll_wait(
      epoll_.get(), events, kEvents,
      static_cast<int>(std::min<int64_t>(milliseconds, std::numeric_limits<int>::max())));
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    if (fd == door_.fd()) {
      TakeGuests();
    } else if (fd == waker_.get()) {
      uint64_t times = 0;
      (void)!read(fd, &times, sizeof times);
    } else if (const auto sender = senders_.find(fd); sender != senders_.end()) {
      const bool readable = (events[i].events & ~static_cast<uint32_t>(EPOLLOUT)) != 0;
      AdvanceSender(sender->second.first, sender->second.second, readable);
    } else if (const auto receiver = receivers_.find(fd); receiver != receivers_.end()) {
      AdvanceReceiver(receiver->second.get());
    }
  }
  if (by_time) LookAtTheClock();
}

void TcpMesh::LookAtTheClock() {
  const auto connecting = connecting_;
  for (const auto& [peer, traffic] : connecting) AdvanceSender(peer, traffic, false);
  TakeGuests();
}

void TcpMesh::Wake() {
  const uint64_t once = 1;
  (void)!write(waker_.get(), &once, sizeof once);
}

void TcpMesh::StopListening() { door_.Close(); }

void TcpMesh::Leave(std::chrono::nanoseconds most) {
  TcpHeader bye;
  bye.bye = 1;
  for (int peer = 0; peer < size(); ++peer) {
    for (const TcpTraffic traffic : {TcpTraffic::kControl, TcpTraffic::kData}) {
      if (SenderTo(peer, traffic).state() != TcpSender::State::kOpen) continue;
      SenderTo(peer, traffic).Append(bye, std::string());
      AdvanceSender(peer, traffic, false);
    }
  }
  const auto until = Clock::now() + most;
  const auto flushed = [this] {
    return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
      return peer.senders[0].flushed() && peer.senders[1].flushed();
    });
  };
  while (!flushed() && Clock::now() < until) Progress(kTick);
  for (auto& [fd, receiver] : receivers_) receiver->SayBye();
}

}  // namespace tfhvd
