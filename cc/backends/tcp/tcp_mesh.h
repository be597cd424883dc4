// TcpMesh: the connections of this process to the others of its job, and the frames that they
// carry. Each pair of ranks has up to four connections, made when first needed: from each to the
// other, for data and for messages of the negotiation.
//
// Data goes from the sender's memory into the kernel, and from there into the receiver's memory. A
// peer whose connection ends without a goodbye has failed, and transfers from and to it fail. After
// a goodbye they fail, too, except for data that the peer has sent before. Strangers are stopped by
// the TcpDoor.
//
// One thread at a time, except for Wake. Nothing blocks, except Progress and Leave.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/backends/tcp/tcp_door.h"
#include "cc/backends/tcp/tcp_inboxes.h"
#include "cc/backends/tcp/tcp_receiver.h"
#include "cc/backends/tcp/tcp_sender.h"
#include "cc/backends/tcp/tcp_socket.h"
#include "cc/base/failpoints.h"
#include "cc/base/status.h"
#include "cc/comm/message_channel.h"

namespace tfhvd {

// How the processes of a job find each other: given by their launcher.
struct TcpEndpoints {
  int rank = 0;
  std::vector<std::string> addresses;  // by rank: "host:port,...", in the order to try them
  std::string token;                   // the job's secret, of kTcpTokenBytes
  int listener = -1;                   // non-blocking, listens at addresses[rank]

  bool exists() const { return !addresses.empty(); }
};

class TcpMesh {
 public:
  // Takes ownership of the listener.
  static Status Open(const TcpEndpoints& endpoints, std::unique_ptr<TcpMesh>* out,
                     const Failpoints& failpoints = {});
  ~TcpMesh() = default;
  TcpMesh(const TcpMesh&) = delete;
  TcpMesh& operator=(const TcpMesh&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  // Post a transfer of at least one byte. Its memory is in use until the owner is called, or takes
  // it back. Between two ranks the transfers of one tag match in order, and have the same lengths.
  void Send(const TcpPlace& to, const TcpTransfer& transfer);
  void Receive(const TcpPlace& from, const TcpTransfer& transfer);

  // Forgets all transfers of `owner`: touches none of their memory, and does not call it again.
  void TakeBack(const TcpOwner* owner);
  // Drops data of this tag from now on, whichever rank sends it.
  void Close(uint64_t context, uint32_t tag) { inboxes_.Close(context, tag); }

  // Sends a message of the negotiation; returns the next message that has arrived for a control
  // plane.
  Status SendMessage(const TcpPlace& to, std::string bytes);
  std::optional<Message> TakeMessage(uint64_t context, uint32_t plane);
  bool has_message(uint64_t context, uint32_t plane) const;
  // Returns whether a message has arrived for any control plane.
  bool has_messages() const { return messages_waiting_ > 0; }
  // Returns whether all messages have left this process.
  bool MessagesFlushed() const;

  // Returns why a peer has failed; ok if it has not.
  const Status& lost(int peer) const { return peers_[static_cast<size_t>(peer)].lost; }

  // Makes progress with all connections; waits until something happens, Wake was called, or `most`
  // has passed.
  void Progress(std::chrono::nanoseconds most);

  // Ends the present Progress, or the next one. Any thread.
  void Wake();

  // Accepts no more connections, and closes those whose peer has not identified itself.
  void StopListening();

  // Tells all peers that this process leaves, so that they do not take it for failed. Waits at most
  // `most` until this is sent. No call may follow.
  void Leave(std::chrono::nanoseconds most);

 private:
  using Clock = std::chrono::steady_clock;

  struct Peer {
    std::vector<TcpSender> senders;  // by traffic
    Status lost;
    Status sends_no_data;  // not ok: it has failed or left
  };
  // The registration of a sender with epoll.
  struct Watched {
    int fd = -1;
    int serial = 0;
    bool writes = false;
  };

  TcpMesh(const TcpEndpoints& endpoints, Fd epoll, Fd waker, Failpoints failpoints);
  TcpSender& SenderTo(int peer, TcpTraffic traffic) {
    return peers_[static_cast<size_t>(peer)].senders[static_cast<size_t>(traffic)];
  }
  void Watch(int fd, uint32_t events, int operation) const;
  void AdvanceSender(int peer, TcpTraffic traffic, bool readable);
  void Rewatch(int peer, TcpTraffic traffic);
  void TakeGuests();
  void AdvanceReceiver(TcpReceiver* receiver);
  void Lose(int peer, const std::string& how);
  void EndData(int peer, const Status& why);
  Status WhyOver(int peer) const;
  void LookAtTheClock();
  void OnMessage(const TcpPlace& place, std::string bytes);

  const Failpoints failpoints_;
  const int rank_;
  TcpDoor door_;
  Fd epoll_;
  Fd waker_;
  std::vector<Peer> peers_;
  std::vector<Watched> watched_;                                     // by peer and traffic
  std::unordered_map<int, std::pair<int, TcpTraffic>> senders_;      // by descriptor
  std::unordered_map<int, std::unique_ptr<TcpReceiver>> receivers_;  // by descriptor
  const TcpReceiver::OnMessage on_message_;
  TcpInboxes inboxes_;
  std::map<std::pair<uint64_t, uint32_t>, std::deque<Message>> messages_;  // by control plane
  int messages_waiting_ = 0;
  std::set<std::pair<int, TcpTraffic>> connecting_;  // need progress by time
};

}  // namespace tfhvd
