// HierarchicalVotes: the votes of ranks on several hosts. The ranks of each host vote on a separate
// board; the leader (the first rank of the host) joins their votes, exchanges them with the other
// leaders (vote_exchange.h), and notes the others' joint vote on the board. See
// cc/comm/vote_board.h for the contract.
//
// A leader shows that all others have voted to commit only after it has sent them everything that
// they need to learn the same, because in a collective it sends nothing.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/collectives/hierarchical/host_layout.h"
#include "cc/collectives/hierarchical/vote_exchange.h"
#include "cc/comm/control_plane.h"
#include "cc/comm/vote_board.h"

namespace tfhvd {

class HierarchicalVotes : public VoteBoard {
 public:
  // `board`: of the ranks of this host. `across`: among all ranks. None is owned.
  HierarchicalVotes(const HostLayout* layout, int host, VoteBoard* board, ControlPlane* across);

  int words() const override { return board_->words() + 1; }
  int own() const override { return board_->own(); }
  void Cast(uint64_t word) override;
  uint64_t Word(int index) const override;
  std::vector<int> RanksOf(int index) const override;
  void WakeOthers() override { board_->WakeOthers(); }
  void WakeOne(int index) override { board_->WakeOne(index); }
  void Note(uint64_t word) override { board_->Note(word); }
  uint64_t noted() const override { return board_->noted(); }

  // Leader only: takes a message of another leader (envelope.h, EncodeVote).
  Status Take(const std::string& bytes);

  // Leader only: sends news to the others. An error means that they cannot be reached.
  Status Exchange();

  // Returns whether Exchange has sent a message since the last call: answers may come soon.
  bool TakeSent() { return std::exchange(sent_, false); }

 private:
  bool leads() const { return board_->own() == 0; }
  Vote Here() const;
  void UpdateKnown();

  const HostLayout* const layout_;
  const int host_;
  VoteBoard* const board_;
  ControlPlane* const across_;

  // Used by a leader only.
  VoteExchange exchange_;
  std::vector<VoteExchange::VoteMessage> messages_;  // kept to save allocations
  uint64_t known_ = 0;                               // of the other hosts, as this rank may see it
  bool sent_ = false;
  Status failure_;  // of an Exchange within Cast, returned by the next
};

}  // namespace tfhvd
