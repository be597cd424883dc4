// Envelope: the messages that travel together between rank 0 and the leader of a host; and the
// votes of hosts that leaders exchange.
//
//   envelope = 0xB1 groups:group*
//   group    = ranks:u* bytes:b*       -- the ranks that the bytes are from, or to
//   vote     = 0xB2 hop:u word:u     -- vote_exchange.h
//
// `u` and `X*` as in cc/docs/wire-format.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"

namespace tfhvd {

class Envelope {
 public:
  // Equal bytes for several consecutive ranks are stored once.
  struct Group {
    std::vector<int> ranks;
    std::string bytes;
  };

  // Adds a message of the rank, after its earlier ones.
  void Add(int rank, std::string bytes);

  const std::vector<Group>& groups() const { return groups_; }
  bool empty() const { return groups_.empty(); }

  std::string Encode() const;

  // Returns an error for anything except one complete envelope whose ranks are below `size`.
  static Status Decode(const std::string& bytes, int size, Envelope* out);

 private:
  std::vector<Group> groups_;
};

std::string EncodeVote(int peer, uint64_t word);

bool IsVote(const std::string& bytes);

// Returns an error for anything except one complete vote of a peer below `peers`.
Status DecodeVote(const std::string& bytes, int peers, int* peer, uint64_t* word);

}  // namespace tfhvd
