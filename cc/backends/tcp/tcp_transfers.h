// TcpTransfers: messages over TCP. Arriving bytes wake a waiting call. See
// cc/collectives/transfer/transfers.h.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "cc/backends/tcp/tcp_mesh.h"
#include "cc/collectives/transfer/transfers.h"

namespace tfhvd {

// The addresses of a communicator's messages.
struct TcpPort {
  TcpMesh* mesh = nullptr;
  uint64_t context = 0;
  uint32_t tag = 0;          // the first of kChannels tags of this communicator
  bool closes_tag = true;    // no later communicator has this tag
  std::vector<int> members;  // their ranks in the mesh
  int rank = 0;              // index of this process in `members`
};

class TcpTransfers : public Transfers, private TcpOwner {
 public:
  // The mesh must outlive this object.
  explicit TcpTransfers(TcpPort port);
  ~TcpTransfers() override;

  const char* name() const override { return "tcp"; }
  const char* title() const override { return "TCP"; }
  bool Settle() override { return true; }
  void Abort(const Status& why) override;

 protected:
  void Start(TransferId id, const Lane& lane, char* data, int64_t bytes) override;
  bool Advance() override;
  bool active() const override { return !active_.empty(); }
  std::vector<int> peers() const override;
  void TakeBack() override;
  bool urgent() const override { return port_.mesh->has_messages(); }
  void Sleep(std::chrono::nanoseconds most, Backoff* backoff) override;

 private:
  void OnDone(int64_t id) override;
  void OnError(int64_t id, const Status& why) override;

  const TcpPort port_;
  std::map<TransferId, int> active_;  // the peer of each transfer
  bool moved_ = false;                // since the last Advance
};

}  // namespace tfhvd
