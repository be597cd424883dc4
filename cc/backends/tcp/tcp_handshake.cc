#include "cc/backends/tcp/tcp_handshake.h"

#include <errno.h>
#include <sys/random.h>

#include <cstring>
#include <utility>

#include "cc/base/sha256.h"

namespace tfhvd {
namespace {

const char kMagic[] = "tfhvd 2\n";
constexpr size_t kMagicBytes = sizeof kMagic - 1;
constexpr size_t kGreetingBytes = kMagicBytes + sizeof(TcpCall) + kTcpNonceBytes;
constexpr size_t kAnswerBytes = kTcpNonceBytes + kSha256Bytes;

std::string Greeting(const TcpCall& call, const std::string& nonce) {
  std::string greeting = kMagic;
  greeting.append(reinterpret_cast<const char*>(&call), sizeof call);
  return greeting + nonce;
}

std::string Sign(const std::string& token, char who, const std::string& greeting,
                 const std::string& nonce) {
  return HmacSha256(token, who + greeting + nonce);
}

}  // namespace

Status MakeNonce(std::string* nonce) {
  nonce->resize(kTcpNonceBytes);
  ssize_t got = -1;
  do {
    got = getrandom(&(*nonce)[0], nonce->size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(nonce->size())) return Status::Ok();
  return Status::Unavailable(std::string("getrandom failed: ") + std::strerror(errno));
}

TcpListening::TcpListening(std::string token, int rank, int size, std::string nonce)
    : token_(std::move(token)), rank_(rank), size_(size), nonce_(std::move(nonce)) {}

size_t TcpListening::missing() const {
  if (stage_ == Stage::kDone) return 0;
  return (stage_ == Stage::kGreeting ? kGreetingBytes : kSha256Bytes) - came_.size();
}

Status TcpListening::Feed(const std::string& bytes, std::string* reply) {
  came_ += bytes;
  reply->clear();
  if (missing() > 0) return Status::Ok();
  const std::string came = std::exchange(came_, {});
  if (stage_ == Stage::kGreeting) {
    std::memcpy(&call_, came.data() + kMagicBytes, sizeof call_);
    if (came.compare(0, kMagicBytes, kMagic) != 0 || !Accepts(call_)) {
      return Status::InvalidArgument("this is no greeting for this rank");
    }
    greeting_ = came;
    stage_ = Stage::kProof;
    *reply = nonce_ + Sign(token_, 'S', greeting_, nonce_);
    return Status::Ok();
  }
  if (!SameSecret(came, Sign(token_, 'C', greeting_, nonce_))) {
    return Status::InvalidArgument("the proof is wrong");
  }
  stage_ = Stage::kDone;
  *reply = kTcpWelcome;
  return Status::Ok();
}

bool TcpListening::Accepts(const TcpCall& call) const {
  return call.to == static_cast<uint32_t>(rank_) && call.from < static_cast<uint32_t>(size_) &&
         call.traffic < static_cast<uint32_t>(kTcpTraffics);
}

TcpCalling::TcpCalling(std::string token, const TcpCall& call, const std::string& nonce)
    : token_(std::move(token)), greeting_(Greeting(call, nonce)) {}

size_t TcpCalling::missing() const { return kAnswerBytes - came_.size(); }

Status TcpCalling::Feed(const std::string& bytes, std::string* reply) {
  came_ += bytes;
  reply->clear();
  if (missing() > 0) return Status::Ok();
  const std::string nonce = came_.substr(0, kTcpNonceBytes);
  if (!SameSecret(came_.substr(kTcpNonceBytes), Sign(token_, 'S', greeting_, nonce))) {
    return Status::InvalidArgument("it does not know the token");
  }
  *reply = Sign(token_, 'C', greeting_, nonce);
  return Status::Ok();
}

}  // namespace tfhvd
