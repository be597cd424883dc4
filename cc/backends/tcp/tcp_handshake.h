// TcpHandshake: the handshake at the beginning of a connection between ranks: both sides prove to
// each other that they know the job's token, which is not sent. The bytes are those of
// tfhvd/network/handshake.py; `about` is a TcpCall, so that the handshake also proves which ranks
// the connection is between.
//
//   from the caller     greeting  magic (8), TcpCall (12), nonce (16)
//   from the listener   answer    nonce (16), HMAC(token, "S" + greeting + that nonce) (32)
//   from the caller     proof     HMAC(token, "C" + greeting + the answer's nonce) (32)
//   from the listener   kTcpWelcome
//
// A nonce is random, and used once. The two classes take bytes and return bytes. They are values,
// each for one thread.
#pragma once

#include <cstdint>
#include <string>

#include "cc/backends/tcp/tcp_frame.h"
#include "cc/base/status.h"

namespace tfhvd {

constexpr size_t kTcpNonceBytes = 16;

// Makes random bytes for one handshake.
Status MakeNonce(std::string* nonce);

// The listening side.
class TcpListening {
 public:
  // `rank`: of this process, of `size`. `nonce`: kTcpNonceBytes bytes.
  TcpListening(std::string token, int rank, int size, std::string nonce);

  // Returns how many bytes the other side sends next; 0: it has proved that it knows the token.
  size_t missing() const;
  // Takes at most `missing` bytes, and sets `reply` to the answer for the other side. Returns an
  // error if the other side does not know the token, or wants another rank.
  Status Feed(const std::string& bytes, std::string* reply);
  // REQUIRES: missing() is 0.
  const TcpCall& call() const { return call_; }

 private:
  enum class Stage { kGreeting, kProof, kDone };

  bool Accepts(const TcpCall& call) const;

  const std::string token_;
  const int rank_;
  const int size_;
  const std::string nonce_;
  Stage stage_ = Stage::kGreeting;
  TcpCall call_;
  std::string greeting_;
  std::string came_;
};

// The calling side, which sends `greeting` first.
class TcpCalling {
 public:
  TcpCalling(std::string token, const TcpCall& call, const std::string& nonce);

  const std::string& greeting() const { return greeting_; }
  // Like those of TcpListening. When missing() is 0, the other side has proved itself, and
  // kTcpWelcome comes next.
  size_t missing() const;
  Status Feed(const std::string& bytes, std::string* reply);

 private:
  const std::string token_;
  const std::string greeting_;
  std::string came_;
};

}  // namespace tfhvd
