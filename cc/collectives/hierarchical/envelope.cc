#include "cc/collectives/hierarchical/envelope.h"

#include <cstdint>
#include <utility>

#include "cc/base/wire.h"

namespace tfhvd {
namespace {

constexpr uint8_t kMark = 0xB1;
constexpr uint8_t kVoteMark = 0xB2;

Status Damaged(const std::string& bytes, const char* expected) {
  return Status::Internal("A message between hosts is damaged. Received: " +
                          std::to_string(bytes.size()) + " bytes. Expected: one whole " + expected +
                          ". Check that all hosts run the same version of tfhvd "
                          "(python -m pip show tfhvd).");
}

}  // namespace

void Envelope::Add(int rank, std::string bytes) {
  if (!groups_.empty() && groups_.back().bytes == bytes && groups_.back().ranks.back() != rank) {
    groups_.back().ranks.push_back(rank);
    return;
  }
  groups_.push_back({{rank}, std::move(bytes)});
}

std::string Envelope::Encode() const {
  WireWriter w;
  w.Byte(kMark);
  w.List(groups_, [&w](const Group& group) {
    w.List(group.ranks, [&w](int rank) { w.Unsigned(static_cast<uint64_t>(rank)); });
    w.String(group.bytes);
  });
  return w.Take();
}

Status Envelope::Decode(const std::string& bytes, int size, Envelope* out) {
  WireReader r(bytes);
  const bool marked = r.Byte() == kMark;
  out->groups_ = r.List([&r, size] {
    Group group;
    group.ranks = r.List([&r, size] {
      const uint64_t rank = r.Unsigned();
      if (rank >= static_cast<uint64_t>(size)) r.Fail();
      return static_cast<int>(rank);
    });
    group.bytes = r.String();
    return group;
  });
  return marked && r.ok() && r.at_end() ? Status::Ok() : Damaged(bytes, "envelope of messages");
}

std::string EncodeVote(int peer, uint64_t word) {
  WireWriter w;
  w.Byte(kVoteMark);
  w.Unsigned(static_cast<uint64_t>(peer));
  w.Unsigned(word);
  return w.Take();
}

bool IsVote(const std::string& bytes) { return WireReader(bytes).Byte() == kVoteMark; }

Status DecodeVote(const std::string& bytes, int peers, int* peer, uint64_t* word) {
  WireReader r(bytes);
  const bool marked = r.Byte() == kVoteMark;
  const uint64_t number = r.Unsigned();
  *word = r.Unsigned();
  if (!marked || !r.ok() || !r.at_end() || number >= static_cast<uint64_t>(peers)) {
    return Damaged(bytes, "vote");
  }
  *peer = static_cast<int>(number);
  return Status::Ok();
}

}  // namespace tfhvd
