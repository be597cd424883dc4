#include "cc/backends/hierarchical/envelope.h"

#include <cstdint>
#include <utility>

namespace tfhvd {
namespace {

constexpr char kMark = static_cast<char>(0xB1);
constexpr char kVoteMark = static_cast<char>(0xB2);

void Put(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

// Takes numbers and bytes off the front of a text; after a failure everything fails.
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  bool Mark(char mark) {
    if (text_.empty() || text_[0] != mark) return false;
    at_ = 1;
    return true;
  }
  bool Number(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 63 && at_ < text_.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(text_[at_++]);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  // A number of things that take at least a byte each.
  bool Count(uint64_t* count) { return Number(count) && *count <= text_.size() - at_; }
  bool Bytes(std::string* out) {
    uint64_t length = 0;
    if (!Count(&length)) return false;
    *out = text_.substr(at_, length);
    at_ += length;
    return true;
  }
  bool AtEnd() const { return at_ == text_.size(); }

 private:
  const std::string& text_;
  size_t at_ = 0;
};

bool Read(const std::string& bytes, int size, std::vector<Envelope::Group>* groups) {
  Reader reader(bytes);
  uint64_t count = 0;
  if (!reader.Mark(kMark) || !reader.Count(&count)) return false;
  for (uint64_t g = 0; g < count; ++g) {
    Envelope::Group group;
    uint64_t ranks = 0;
    if (!reader.Count(&ranks)) return false;
    for (uint64_t i = 0; i < ranks; ++i) {
      uint64_t rank = 0;
      if (!reader.Number(&rank) || rank >= static_cast<uint64_t>(size)) return false;
      group.ranks.push_back(static_cast<int>(rank));
    }
    if (!reader.Bytes(&group.bytes)) return false;
    groups->push_back(std::move(group));
  }
  return reader.AtEnd();
}

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
  std::string out(1, kMark);
  Put(groups_.size(), &out);
  for (const Group& group : groups_) {
    Put(group.ranks.size(), &out);
    for (const int rank : group.ranks) Put(static_cast<uint64_t>(rank), &out);
    Put(group.bytes.size(), &out);
    out += group.bytes;
  }
  return out;
}

Status Envelope::Decode(const std::string& bytes, int size, Envelope* out) {
  if (Read(bytes, size, &out->groups_)) return Status::Ok();
  return Damaged(bytes, "envelope of messages");
}

std::string EncodeVote(int hop, uint64_t word) {
  std::string out(1, kVoteMark);
  Put(static_cast<uint64_t>(hop), &out);
  Put(word, &out);
  return out;
}

bool IsVote(const std::string& bytes) { return !bytes.empty() && bytes[0] == kVoteMark; }

Status DecodeVote(const std::string& bytes, int hops, int* hop, uint64_t* word) {
  Reader reader(bytes);
  uint64_t number = 0;
  if (!reader.Mark(kVoteMark) || !reader.Number(&number) || !reader.Number(word) ||
      !reader.AtEnd() || number >= static_cast<uint64_t>(hops)) {
    return Damaged(bytes, "vote");
  }
  *hop = static_cast<int>(number);
  return Status::Ok();
}

}  // namespace tfhvd
