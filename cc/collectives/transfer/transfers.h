// Transfers: the messages of one communicator in transit, and how its rank waits. The classes for
// MPI and TCP derive from it.
//
// Sends and receives return an id at once. Waiting makes progress with all of them, backs off while
// there is none, and ends when the call is aborted or the wait monitor says so. Between two ranks,
// messages of a channel match in the order in which both post them.
//
// The first failure stays: later transfers do nothing and waits return false, so that algorithms
// only leave their loops; End returns the failure.
//
// One thread, except for Abort.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cc/base/backoff.h"
#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/comm/wait_monitor.h"

namespace tfhvd {

// The largest message of an algorithm that passes on what it receives. Over TCP, MPI announces
// larger ones and sends them when the receiver has answered (Open MPI from 64 KiB on); the
// announcement and the answer wait behind everything that is in transit between the two, and
// meanwhile the link idles.
constexpr int64_t kMessageBytes = 63 << 10;

// The bytes that a rank sends ahead of what it receives: more than links hold (1 Gbit/s and 5 ms:
// 0.6 MB), and little enough that TCP does not lose packets that wait in a switch.
constexpr int64_t kBytesAhead = 1 << 20;

// The number of transfers of one exchange that are in progress at once: 16 peers, to and from.
constexpr int64_t kExchangeWindow = 32;

// Messages of one channel never match those of another.
enum class Channel { kValues, kResults };
constexpr int kChannels = 2;

class Transfers {
 public:
  using TransferId = int64_t;

  // `members`: their ranks in the job; `rank`: index of this process among them.
  Transfers(std::vector<int> members, int rank) : members_(std::move(members)), rank_(rank) {}
  virtual ~Transfers() = default;
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // The names of the transport, for communicators and for people: "mpi" and "MPI".
  virtual const char* name() const = 0;
  virtual const char* title() const = 0;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }

  // Returns rank `rank()` + distance, around the circle; distance may be negative.
  int Neighbour(int distance) const { return (rank() + distance + size()) % size(); }

  // Sets a function that is called in every wait, to decide whether to continue.
  void SetOnWait(std::function<Status(const tfhvd::Wait&)> on_wait) {
    on_wait_ = std::move(on_wait);
  }

  // Starts a collective, called `what` in messages; fails if an earlier one has failed.
  Status Begin(const char* what);

  // Waits for all transfers. After a failure: takes back those in progress, as far as possible at
  // once.
  Status End();

  // Any number of bytes; zero bytes make no message. Peers are indices of the members. The buffer
  // is in use until the id is done.
  TransferId Send(int to, const void* data, int64_t bytes, Channel channel = Channel::kValues);
  TransferId Receive(int from, void* data, int64_t bytes, Channel channel = Channel::kValues);

  // The next id: ids increase by one.
  TransferId next() const { return static_cast<TransferId>(remaining_.size()); }

  // Wait until the id, or all ids in [begin, end), are done; return false after a failure.
  bool Wait(TransferId id);
  bool Wait(TransferId begin, TransferId end);

  bool done(TransferId id) const { return remaining_[static_cast<size_t>(id)] == 0; }
  bool failed() const { return !failure_.ok(); }

  // Waits until any message is done, if there are any; returns false after a failure.
  bool WaitForProgress();

  // Makes progress with messages, between pieces of computation.
  void Poll() { (void)Advance(); }

  // Makes progress with the remains of a failed call; returns whether none are left, so that the
  // buffers are no longer touched. REQUIRES: between End and Begin.
  virtual bool Settle() = 0;

  virtual void Abort(const Status& why);

 protected:
  // A message from, or to, a peer on a channel.
  struct Lane {
    int peer;
    bool receives;
    Channel channel;

    size_t index() const {
      return static_cast<size_t>((2 * peer + (receives ? 1 : 0)) * kChannels +
                                 static_cast<int>(channel));
    }
  };

  // Starts a transfer of at least one byte: as messages, each of which Adds one to the remaining
  // count of the id, and Takes it away when its buffer is no longer touched.
  virtual void Start(TransferId id, const Lane& lane, char* data, int64_t bytes) = 0;

  // Makes progress with messages, without blocking; returns whether one is done.
  virtual bool Advance() = 0;

  // Return whether messages are in transit, and with which peers, as indices of the members.
  virtual bool active() const = 0;
  virtual std::vector<int> peers() const = 0;

  // Takes back the transfers in progress, after a failure.
  virtual void TakeBack() = 0;

  // Returns whether the wait monitor must be called at once: messages for it have arrived.
  virtual bool urgent() const { return false; }

  // Sleeps at most `most`, until messages may have made progress. `backoff`: how long to sleep if
  // nothing wakes this rank.
  virtual void Sleep(std::chrono::nanoseconds most, Backoff* backoff);

  void Add(TransferId id) { ++remaining_[static_cast<size_t>(id)]; }
  void Take(TransferId id) { --remaining_[static_cast<size_t>(id)]; }

  // The first failure stays.
  void Fail(Status why) {
    if (failure_.ok()) failure_ = std::move(why);
  }

  const char* what() const { return what_; }
  int member(int peer) const { return members_[static_cast<size_t>(peer)]; }

 private:
  TransferId Post(const Lane& lane, char* data, int64_t bytes);
  bool Continues(WaitPacer* pacer);
  bool Aborted();

  const std::vector<int> members_;
  const int rank_;
  std::function<Status(const tfhvd::Wait&)> on_wait_;
  const char* what_ = "";
  std::vector<int> remaining_;  // messages to go, by id of the current collective
  Backoff backoff_;
  Status failure_;

  std::atomic<bool> aborted_{false};
  Mutex mutex_;
  Status abort_reason_ TFHVD_GUARDED_BY(mutex_);
};

}  // namespace tfhvd
