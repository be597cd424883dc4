// HierarchicalVotes: the votes of ranks on several hosts. Each host's ranks vote on a board of
// their own; its leader (the first rank of the host) joins their votes, exchanges them with the
// other leaders (vote_exchange.h), and notes on the board what those have said. See
// cc/comm/vote_board.h for the contract.
//
// A leader shows that all others have voted to commit only once it has passed on all that they need
// to learn the same: in a collective it passes nothing on.
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

  // A leader's: takes a message of another leader (envelope.h, EncodeVote).
  Status Take(const std::string& bytes);

  // A leader's: tells the others what is new to them. An error means that they cannot be reached.
  Status Exchange();

  // Whether Exchange has told anything since this was last asked: answers may come soon.
  bool TakeSent() { return std::exchange(sent_, false); }

 private:
  bool leads() const { return board_->own() == 0; }
  Vote Here() const;
  void UpdateKnown();

  const HostLayout* const layout_;
  const int host_;
  VoteBoard* const board_;
  ControlPlane* const across_;

  // A leader's.
  VoteExchange exchange_;
  std::vector<VoteExchange::VoteMessage> messages_;  // kept to save allocations
  uint64_t known_ = 0;                               // of the other hosts, as this rank may see it
  bool sent_ = false;
  Status failure_;  // of an Exchange within Cast, told by the next
};

}  // namespace tfhvd
