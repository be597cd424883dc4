// Wire: the bytes of messages between processes, field by field. Integers are variable-length
// (7 bits a byte, lowest first), signed ones zigzag; doubles are 8 bytes, little end first; strings
// and lists are preceded by their length.
//
// A value of one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"

namespace tfhvd {

// Appends fields to a message.
class WireWriter {
 public:
  void Byte(uint8_t v) { out_.push_back(static_cast<char>(v)); }
  void Unsigned(uint64_t v) {
    while (v >= 0x80) {
      Byte(static_cast<uint8_t>(v | 0x80));
      v >>= 7;
    }
    Byte(static_cast<uint8_t>(v));
  }
  void Signed(int64_t v) {
    Unsigned((static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63));
  }
  void Double(double v) {
    uint64_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    for (int i = 0; i < 8; ++i) Byte(static_cast<uint8_t>(bits >> (8 * i)));
  }
  void String(const std::string& s) {
    Unsigned(s.size());
    out_ += s;
  }
  template <typename T, typename F>
  void List(const std::vector<T>& items, F write) {
    Unsigned(items.size());
    for (const T& item : items) write(item);
  }
  void Numbers(const std::vector<int64_t>& numbers) {
    List(numbers, [this](int64_t number) { Signed(number); });
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads fields from a message, which must outlive this object. After the first error every read
// returns zero and ok() stays false.
class WireReader {
 public:
  explicit WireReader(const std::string& bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return position_ == bytes_.size(); }

  uint8_t Byte() {
    if (!ok_ || position_ >= bytes_.size()) return Fail();
    return static_cast<uint8_t>(bytes_[position_++]);
  }
  uint64_t Unsigned() {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t b = Byte();
      if (shift == 63 && b > 1) return Fail();
      v |= static_cast<uint64_t>(b & 0x7f) << shift;
      if ((b & 0x80) == 0) return ok_ ? v : 0;
    }
    return Fail();
  }
  int64_t Signed() {
    const uint64_t v = Unsigned();
    return static_cast<int64_t>((v >> 1) ^ (~(v & 1) + 1));
  }
  int32_t Int32() {
    const int64_t v = Signed();
    if (v < INT32_MIN || v > INT32_MAX) return Fail();
    return static_cast<int32_t>(v);
  }
  double Double() {
    uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits |= static_cast<uint64_t>(Byte()) << (8 * i);
    double v;
    std::memcpy(&v, &bits, sizeof v);
    return v;
  }
  bool Bool() {
    const uint8_t v = Byte();
    if (v > 1) Fail();
    return v == 1;
  }
  std::string String() {
    const uint64_t n = Unsigned();
    if (!ok_ || n > bytes_.size() - position_) {
      Fail();
      return {};
    }
    std::string s = bytes_.substr(position_, n);
    position_ += n;
    return s;
  }
  template <typename E>
  E Enum(int limit) {
    const uint8_t v = Byte();
    if (v >= limit) Fail();
    return static_cast<E>(ok_ ? v : 0);
  }
  // Every item takes at least one byte, so a length beyond the rest of the message is an error, not
  // an allocation.
  template <typename F>
  auto List(F read) -> std::vector<decltype(read())> {
    std::vector<decltype(read())> items;
    const uint64_t n = Unsigned();
    if (!ok_ || n > bytes_.size() - position_) {
      Fail();
      return items;
    }
    items.reserve(std::min<uint64_t>(n, 1024));
    for (uint64_t i = 0; i < n && ok_; ++i) items.push_back(read());
    return items;
  }
  std::vector<int64_t> Numbers() {
    return List([this] { return Signed(); });
  }
  uint8_t Fail() {
    ok_ = false;
    return 0;
  }

 private:
  const std::string& bytes_;
  size_t position_ = 0;
  bool ok_ = true;
};

inline void Write(WireWriter* w, const Status& status) {
  w->Byte(static_cast<uint8_t>(status.code()));
  w->String(status.message());
}
inline Status ReadStatus(WireReader* r) {
  const auto code = r->Enum<StatusCode>(kStatusCodes);
  return Status(code, r->String());
}

}  // namespace tfhvd
