// The handshake of ranks: its bytes, which are those of tfhvd/network/handshake.py, and what it
// refuses.
#include "cc/backends/tcp/tcp_handshake.h"

#include <string>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

const std::string kSecret = "0123456789abcdef0123456789abcdef";
constexpr TcpCall kCall{1, 3, 5};  // data, from rank 3 to rank 5
const std::string kNonce(kTcpNonceBytes, 'n');

// Of kSecret, kCall, kNonce and a nonce of the letter s. tests/launch/test_door.py makes the same
// in Python, and looks for it here.
const std::string kGreeting =
    "746668766420320a0100000003000000050000006e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e";
const std::string kAnswer =
    "73737373737373737373737373737373"
    "0ac1a4d74b8a8c101cab0166ce3348538ba5a2069d1866b3ce66635ddb51ea64";
const std::string kProof = "c477f7dbd7797f156732e6f908267f5206a0d4506fe04e3ed78dfea8b00621b3";

std::string Bytes(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

TcpListening Listener(const std::string& token = kSecret) {
  return TcpListening(token, 5, 6, std::string(kTcpNonceBytes, 's'));
}

TEST(ItsBytesAreThoseOfPython) {
  TcpCalling calling(kSecret, kCall, kNonce);
  EXPECT_TRUE(calling.greeting() == Bytes(kGreeting));
  TcpListening listening = Listener();
  std::string reply;
  ASSERT_OK(listening.Feed(calling.greeting(), &reply));
  EXPECT_TRUE(reply == Bytes(kAnswer));
  ASSERT_OK(calling.Feed(reply, &reply));
  EXPECT_TRUE(reply == Bytes(kProof));
  EXPECT_EQ(calling.missing(), size_t{0});
  ASSERT_OK(listening.Feed(reply, &reply));
  EXPECT_EQ(reply, std::string(1, kTcpWelcome));
  EXPECT_EQ(listening.missing(), size_t{0});
  EXPECT_EQ(listening.call().from, 3u);
  EXPECT_EQ(listening.call().traffic, 1u);
}

// Each bit of what comes is proved.
TEST(AnyBitThatIsOffIsRefused) {
  std::string reply;
  for (size_t bit = 0; bit < Bytes(kGreeting).size() * 8; ++bit) {
    std::string greeting = Bytes(kGreeting);
    greeting[bit / 8] = static_cast<char>(greeting[bit / 8] ^ (1 << bit % 8));
    TcpListening listening = Listener();
    EXPECT_FALSE(listening.Feed(greeting, &reply).ok() &&
                 listening.Feed(Bytes(kProof), &reply).ok());
  }
  for (size_t bit = 0; bit < Bytes(kAnswer).size() * 8; ++bit) {
    std::string answer = Bytes(kAnswer);
    answer[bit / 8] = static_cast<char>(answer[bit / 8] ^ (1 << bit % 8));
    TcpCalling calling(kSecret, kCall, kNonce);
    EXPECT_FALSE(calling.Feed(answer, &reply).ok());
    EXPECT_TRUE(reply.empty());
  }
  for (size_t bit = 0; bit < Bytes(kProof).size() * 8; ++bit) {
    std::string proof = Bytes(kProof);
    proof[bit / 8] = static_cast<char>(proof[bit / 8] ^ (1 << bit % 8));
    TcpListening listening = Listener();
    ASSERT_OK(listening.Feed(Bytes(kGreeting), &reply));
    EXPECT_FALSE(listening.Feed(proof, &reply).ok());
    EXPECT_TRUE(reply.empty());
  }
}

// A listener's own answer, sent back to it, proves nothing.
TEST(WhatTheOtherSideHasSaidProvesNothing) {
  std::string answer, reply;
  TcpListening listening = Listener();
  ASSERT_OK(listening.Feed(Bytes(kGreeting), &answer));
  EXPECT_FALSE(listening.Feed(answer.substr(kTcpNonceBytes), &reply).ok());
}

TEST(NoTwoNoncesAreTheSame) {
  std::string one, other;
  ASSERT_OK(MakeNonce(&one));
  ASSERT_OK(MakeNonce(&other));
  EXPECT_EQ(one.size(), kTcpNonceBytes);
  EXPECT_TRUE(one != other);
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
