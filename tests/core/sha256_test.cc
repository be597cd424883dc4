// SHA-256 by the examples of FIPS 180-2, HMAC-SHA256 by those of RFC 4231.
#include "cc/base/sha256.h"

#include <string>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

std::string Hex(const std::string& bytes) {
  static const char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

TEST(TheExamplesOfTheStandard) {
  EXPECT_EQ(Hex(Sha256("")),
            std::string("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
  EXPECT_EQ(Hex(Sha256("abc")),
            std::string("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
  EXPECT_EQ(Hex(Sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            std::string("248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"));
  EXPECT_EQ(Hex(Sha256(std::string(1000000, 'a'))),
            std::string("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
}

// Of all lengths about the end of a block: the digest of all of their digests, by Python's hashlib:
// sha256(b"".join(sha256(b"x" * n).digest() for n in range(200))).hexdigest()
TEST(EveryLengthIsPaddedRight) {
  std::string digests;
  for (size_t size = 0; size < 200; ++size) digests += Sha256(std::string(size, 'x'));
  EXPECT_EQ(Hex(Sha256(digests)),
            std::string("f5e61141898898cdabae3590cb32e1901b40bdc59952302926213a44c105c129"));
}

TEST(TheExamplesOfTheRfc) {
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            std::string("b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"));
  EXPECT_EQ(Hex(HmacSha256("Jefe", "what do ya want for nothing?")),
            std::string("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"));
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\xaa'), std::string(50, '\xdd'))),
            std::string("773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"));
  EXPECT_EQ(Hex(HmacSha256(std::string(131, '\xaa'),
                           "Test Using Larger Than Block-Size Key - Hash Key First")),
            std::string("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"));
  EXPECT_EQ(Hex(HmacSha256(std::string(131, '\xaa'),
                           "This is a test using a larger than block-size key and a larger than "
                           "block-size data. The key needs to be hashed before being used by the "
                           "HMAC algorithm.")),
            std::string("9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"));
}

TEST(SecretsAreTheSameInEachByte) {
  const std::string secret = "0123456789abcdef";
  EXPECT_TRUE(SameSecret(secret, secret));
  EXPECT_TRUE(SameSecret("", ""));
  EXPECT_FALSE(SameSecret(secret, secret + "0"));
  EXPECT_FALSE(SameSecret(secret, ""));
  for (size_t i = 0; i < secret.size(); ++i) {
    std::string other = secret;
    other[i] = static_cast<char>(other[i] ^ '\x80');
    EXPECT_FALSE(SameSecret(secret, other));
  }
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
