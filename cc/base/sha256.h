// SHA-256 (FIPS 180-4), and the code by which who knows a key proves where a message comes from:
// HMAC-SHA256 (RFC 2104). Pure.
#pragma once

#include <cstddef>
#include <string>

namespace tfhvd {

constexpr size_t kSha256Bytes = 32;

// Both return kSha256Bytes bytes.
std::string Sha256(const std::string& data);
std::string HmacSha256(const std::string& key, const std::string& message);

// Whether both are the same. How long that takes depends on their lengths alone, so that it does
// not say how much of a secret was right.
bool SameSecret(const std::string& one, const std::string& other);

}  // namespace tfhvd
