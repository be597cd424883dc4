// SHA-256 (FIPS 180-4), and HMAC-SHA256 (RFC 2104), a code by which the holder of a key proves that
// a message is genuine. Pure.
#pragma once

#include <cstddef>
#include <string>

namespace tfhvd {

constexpr size_t kSha256Bytes = 32;

// Both return kSha256Bytes bytes.
std::string Sha256(const std::string& data);
std::string HmacSha256(const std::string& key, const std::string& message);

// Returns whether both are equal. The time depends on their lengths only, so that it does not
// reveal how much of a secret was right.
bool SameSecret(const std::string& one, const std::string& other);

}  // namespace tfhvd
