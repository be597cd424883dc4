// TcpDoor: the only way into a rank for its peers. A connecting process is a stranger until it has
// proved that it knows the job's token (tcp_handshake.h). A stranger costs little: a door holds few
// at a time, reads no more than the handshake from each, and gives it a limited time. While the
// process is short of descriptors, the door accepts no connections.
//
// One thread. Nothing blocks.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "cc/backends/tcp/tcp_handshake.h"
#include "cc/base/fd.h"
#include "cc/base/status.h"

namespace tfhvd {

class TcpDoor {
 public:
  // A peer that has proved that it knows the token.
  struct Guest {
    Fd fd;
    int peer = -1;
    TcpTraffic traffic = TcpTraffic::kData;
  };

  TcpDoor() = default;  // closed

  // Takes ownership of the listener. `rank`: of this process, of `size`.
  Status Open(Fd listener, std::string token, int rank, int size);
  // Closes the listener, and the connections of strangers.
  void Close();

  // Readable when Take has work; -1 if the door is closed.
  int fd() const { return epoll_.get(); }
  // Returns whether Take may have work after some time even if nothing arrives.
  bool waits_for_time() const { return !strangers_.empty() || rests_; }
  // Returns the peers that have completed the handshake since the last call.
  std::vector<Guest> Take();

 private:
  using Clock = std::chrono::steady_clock;

  struct Stranger {
    Fd fd;
    TcpListening handshake;
    Clock::time_point until;  // for the handshake
  };
  using Strangers = std::map<int, Stranger>;  // by descriptor

  void Watch(int fd, uint32_t events, int operation) const;
  void Accept(std::vector<Guest>* guests);
  // Reads what has arrived. Returns whether the stranger was removed: as a guest, or closed.
  bool Advance(Strangers::iterator each, std::vector<Guest>* guests);
  // Closes the connection that has been without a handshake for longest, if there are too many.
  void CloseOldest(std::vector<Guest>* guests);
  void LookAtTheClock();

  std::string token_;
  int rank_ = 0;
  int size_ = 0;
  Fd listener_;
  Fd epoll_;
  Strangers strangers_;
  // The end of a pause while this process is short of descriptors.
  Clock::time_point rests_until_ = {};
  bool rests_ = false;
};

}  // namespace tfhvd
