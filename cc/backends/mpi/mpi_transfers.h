// MpiTransfers: messages over MPI. A wait polls the oldest message of every lane (MPI_Test, never a
// blocking call). See cc/collectives/transfer/transfers.h.
//
// At each poll MPI walks through all its messages. Therefore it gets only a window of each lane,
// and the next message when one of them is done: a byte takes no longer in a transfer of a gigabyte
// than in one of a megabyte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "cc/backends/mpi/mpi_api.h"
#include "cc/collectives/transfer/transfers.h"

namespace tfhvd {

// The addresses of a communicator's messages.
struct MpiPort {
  const MpiApi* api = nullptr;
  MpiHandle comm = 0;
  int tag = 0;               // the first of kChannels tags of this communicator
  std::vector<int> members;  // their ranks in `comm`
  int rank = 0;              // index of this process in `members`
};

// The most messages of a lane that MPI has at once.
constexpr size_t kMpiWindow = kBytesAhead / kMessageBytes;

class MpiTransfers : public Transfers {
 public:
  explicit MpiTransfers(MpiPort port);

  const char* name() const override { return "mpi"; }
  const char* title() const override { return "MPI"; }
  bool Settle() override;

 protected:
  void Start(TransferId id, const Lane& lane, char* data, int64_t bytes) override;
  bool Advance() override;
  bool active() const override { return !busy_.empty(); }
  std::vector<int> peers() const override;
  void TakeBack() override;

 private:
  // A message that MPI has.
  struct Posted {
    MpiHandle request;
    TransferId id;
  };
  // The rest of a transfer.
  struct Rest {
    TransferId id;
    char* data;
    int64_t bytes;
  };
  struct Queue {
    Lane lane;
    std::deque<Posted> posted;  // the oldest first
    std::deque<Rest> rest;      // the transfers after them, in order

    bool empty() const { return posted.empty() && rest.empty(); }
  };

  void PostMore(Queue* queue);
  bool TakeDone(Queue* queue);
  void ForgetIdle();
  void FailWith(int error, const Lane& lane);

  const MpiPort port_;
  std::vector<std::unique_ptr<Queue>> queues_;  // by lane; null: unused so far
  std::vector<Queue*> busy_;                    // not owned: the queues that are not empty
};

}  // namespace tfhvd
