// MpiTransfers: the messages of one communicator that are under way, and how its rank waits.
//
// Sends and receives return at once with an id; waiting polls every one of them (MPI_Test, never
// a blocking call), backs off while nothing moves, and ends when the call is aborted or the wait
// monitor says so. Between two ranks messages of a channel match in the order in which both post
// them.
//
// The first failure stays: later transfers do nothing and waits return false, so that algorithms
// only leave their loops; End says what it was.
//
// One thread, except for Abort.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cc/backends/mpi/mpi_api.h"
#include "cc/base/backoff.h"
#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/comm/wait_monitor.h"

namespace tfhvd {

// Bytes of a message at most. Over TCP, MPI announces a larger one and sends it when the receiver
// has answered (Open MPI from 64 KiB on); both words wait behind everything that is on the way
// between the two, and meanwhile the link idles.
constexpr int64_t kMpiMessageBytes = 63 << 10;

// What a rank sends ahead of what it receives: more than links hold (1 Gbit/s and 5 ms: 0.6 MB),
// and little enough that TCP does not lose what waits in a switch.
constexpr int64_t kMpiBytesAhead = 1 << 20;

// Transfers of one exchange that are under way at once: 16 peers, to and from.
constexpr int64_t kMpiExchangeWindow = 32;

// Messages of one channel match none of another.
enum class MpiChannel { kValues, kResults };
constexpr int kMpiChannels = 2;

// Where a communicator's messages go.
struct MpiPort {
  const MpiApi* api = nullptr;
  MpiHandle comm = 0;
  int tag = 0;               // tells this communicator's messages from the others'; the first of
                             // kMpiChannels
  std::vector<int> members;  // their ranks in `comm`
  int rank = 0;              // index of this process in `members`
};

class MpiTransfers {
 public:
  using TransferId = int64_t;

  // `on_wait`: asked in every wait whether to go on.
  MpiTransfers(MpiPort port, std::function<Status(const tfhvd::Wait&)> on_wait);
  ~MpiTransfers() = default;
  MpiTransfers(const MpiTransfers&) = delete;
  MpiTransfers& operator=(const MpiTransfers&) = delete;

  const MpiPort& port() const { return port_; }

  // Starts a collective, called `what` in messages; fails if an earlier one has failed.
  Status Begin(const char* what);

  // Waits for everything. After a failure: takes back what is under way, as far as MPI can at once.
  Status End();

  // Any number of bytes; none is no message. Peers are indices of the port's members. The buffer is
  // in use until the id is done.
  TransferId Send(int to, const void* data, int64_t bytes,
                  MpiChannel channel = MpiChannel::kValues);
  TransferId Receive(int from, void* data, int64_t bytes, MpiChannel channel = MpiChannel::kValues);

  // The id that comes next: ids count up by one.
  TransferId next() const { return static_cast<TransferId>(remaining_.size()); }

  // Wait until the id, or all ids in [begin, end), are done; false after a failure.
  bool Wait(TransferId id);
  bool Wait(TransferId begin, TransferId end);

  bool done(TransferId id) const { return remaining_[static_cast<size_t>(id)] == 0; }
  bool failed() const { return !failure_.ok(); }

  // Waits until any message is done, if there are any; false after a failure.
  bool WaitForProgress();

  // Lets the messages move on, between pieces of computation.
  void Poll() { (void)Advance(); }

  // Lets what a failed call had to leave behind move on; whether nothing is left, so that the
  // buffers are touched no more. REQUIRES: between End and Begin.
  bool Settle();

  void Abort(const Status& why);

 private:
  // A message from, or to, a peer on a channel.
  struct Lane {
    int peer;
    bool receives;
    MpiChannel channel;

    size_t index() const {
      return static_cast<size_t>((2 * peer + (receives ? 1 : 0)) * kMpiChannels +
                                 static_cast<int>(channel));
    }
  };
  struct Active {
    MpiHandle request;
    TransferId id;
    Lane lane;
  };
  TransferId Start(const Lane& lane, char* data, int64_t bytes);
  bool Advance();  // whether something has completed
  bool GoesOn(WaitPacer* pacer);
  void Fail(int error, const Lane& lane);
  bool Aborted();

  const MpiPort port_;
  const std::function<Status(const tfhvd::Wait&)> on_wait_;
  const char* what_ = "";
  std::vector<Active> active_;
  std::vector<int> remaining_;   // messages to go, by id of the current collective
  int64_t looks_ = 0;            // calls of Advance
  std::vector<int64_t> looked_;  // by lane: the last of them that found a message not done
  Backoff backoff_;
  Status failure_;

  std::atomic<bool> aborted_{false};
  Mutex mutex_;
  Status abort_reason_ TFHVD_GUARDED_BY(mutex_);
};

}  // namespace tfhvd
