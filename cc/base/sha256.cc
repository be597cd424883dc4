#include "cc/base/sha256.h"

#include <array>
#include <cstdint>

namespace tfhvd {
namespace {

constexpr size_t kBlock = 64;  // bytes

// The first bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using Words = std::array<uint32_t, 8>;

// The first bits of the fractional parts of the square roots of the first 8 primes.
constexpr Words kBegin = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

uint32_t Rotate(uint32_t word, int by) { return (word >> by) | (word << (32 - by)); }

uint32_t WordAt(const char* at) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = (word << 8) | static_cast<unsigned char>(at[i]);
  return word;
}

void Take(const char* block, Words* state) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = WordAt(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t near = Rotate(w[i - 15], 7) ^ Rotate(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t far = Rotate(w[i - 2], 17) ^ Rotate(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + near + w[i - 7] + far;
  }
  auto [a, b, c, d, e, f, g, h] = *state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t choice = (e & f) ^ (~e & g);
    const uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    const uint32_t first =
        h + (Rotate(e, 6) ^ Rotate(e, 11) ^ Rotate(e, 25)) + choice + kRounds[i] + w[i];
    const uint32_t second = (Rotate(a, 2) ^ Rotate(a, 13) ^ Rotate(a, 22)) + majority;
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const Words added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < added.size(); ++i) (*state)[i] += added[i];
}

}  // namespace

std::string Sha256(const std::string& data) {
  std::string padded = data + '\x80';
  padded.append((2 * kBlock - 8 - padded.size() % kBlock) % kBlock, '\0');
  const uint64_t bits = uint64_t{data.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(bits >> shift & 0xff);
  Words state = kBegin;
  for (size_t at = 0; at < padded.size(); at += kBlock) Take(padded.data() + at, &state);
  std::string digest;
  for (const uint32_t word : state) {
    for (int shift = 24; shift >= 0; shift -= 8) digest += static_cast<char>(word >> shift & 0xff);
  }
  return digest;
}

std::string HmacSha256(const std::string& key, const std::string& message) {
  std::string block = key.size() > kBlock ? Sha256(key) : key;
  block.resize(kBlock, '\0');
  std::string inner = block;
  std::string outer = block;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  return Sha256(outer + Sha256(inner + message));
}

bool SameSecret(const std::string& one, const std::string& other) {
  if (one.size() != other.size()) return false;
  unsigned different = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    different |= static_cast<unsigned char>(one[i] ^ other[i]);
  }
  return different == 0;
}

}  // namespace tfhvd
