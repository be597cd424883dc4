// MpiTransfers: messages that MPI carries. Waiting polls every one of them (MPI_Test, never a
// blocking call). See cc/transfer/transfers.h.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/backends/mpi/mpi_api.h"
#include "cc/transfer/transfers.h"

namespace tfhvd {

// Where a communicator's messages go.
struct MpiPort {
  const MpiApi* api = nullptr;
  MpiHandle comm = 0;
  int tag = 0;               // tells this communicator's messages from the others'; the first of
                             // kChannels
  std::vector<int> members;  // their ranks in `comm`
  int rank = 0;              // index of this process in `members`
};

class MpiTransfers : public Transfers {
 public:
  explicit MpiTransfers(MpiPort port);

  const char* name() const override { return "mpi"; }
  const char* title() const override { return "MPI"; }
  bool Settle() override;

 protected:
  void Start(TransferId id, const Lane& lane, char* data, int64_t bytes) override;
  bool Advance() override;
  bool active() const override { return !active_.empty(); }
  std::vector<int> peers() const override;
  void TakeBack() override;

 private:
  struct Active {
    MpiHandle request;
    TransferId id;
    Lane lane;
  };
  void FailWith(int error, const Lane& lane);

  const MpiPort port_;
  std::vector<Active> active_;
  int64_t looks_ = 0;            // calls of Advance
  std::vector<int64_t> looked_;  // by lane: the last of them that found a message not done
};

}  // namespace tfhvd
