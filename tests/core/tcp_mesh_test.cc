// Connections of the TCP backend: strangers, peers that leave or die, addresses that lead nowhere.
#include "cc/backends/tcp/tcp_mesh.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc/backends/tcp/tcp_handshake.h"
#include "cc/backends/tcp/tcp_socket.h"
#include "cc/backends/tcp/tcp_transfers.h"
#include "cc/base/sha256.h"
#include "tests/core/tcp_jobs.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTurn(20);

std::unique_ptr<TcpMesh> Open(const TcpEndpoints& endpoints) {
  std::unique_ptr<TcpMesh> mesh;
  EXPECT_OK(TcpMesh::Open(endpoints, &mesh));
  return mesh;
}

// Two ranks in one thread, which lets both move on.
struct Pair {
  Pair() : Pair(EndpointsHere(2)) {}
  explicit Pair(const std::vector<TcpEndpoints>& all_endpoints)
      : zero(Open(all_endpoints[0])),
        one(Open(all_endpoints[1])),
        address(all_endpoints[0].addresses[0]) {}

  template <typename Done>
  bool Until(const Done& done) {
    const auto deadline = Clock::now() + std::chrono::seconds(30);
    while (!done() && Clock::now() < deadline) {
      if (zero != nullptr) zero->Progress(std::chrono::nanoseconds(0));
      if (one != nullptr) one->Progress(std::chrono::milliseconds(1));
    }
    return done();
  }

  std::unique_ptr<TcpMesh> zero;
  std::unique_ptr<TcpMesh> one;
  std::string address;
};

class Posted : public TcpOwner {
 public:
  void OnDone(int64_t id) override { results_[id] = "done"; }
  void OnError(int64_t id, const Status& why) override { results_[id] = why.message(); }

  // "" while it is under way.
  std::string result(int64_t id) const {
    const auto found = results_.find(id);
    return found == results_.end() ? "" : found->second;
  }
  bool over(int64_t id) const { return !result(id).empty(); }

 private:
  std::map<int64_t, std::string> results_;
};

constexpr TcpPlace kAtZero{0, 0, 7};
constexpr TcpPlace kAtOne{1, 0, 7};

std::string Text(size_t bytes, char first) {
  std::string text(bytes, first);
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(first + i % 23);
  return text;
}

void Send(TcpMesh* mesh, const TcpPlace& to, const std::string& text, Posted* posted, int64_t id) {
  mesh->Send(to, {const_cast<char*>(text.data()), static_cast<int64_t>(text.size()), posted, id});
}

void Receive(TcpMesh* mesh, const TcpPlace& from, std::string* text, Posted* posted, int64_t id) {
  mesh->Receive(from, {&(*text)[0], static_cast<int64_t>(text->size()), posted, id});
}

void ExpectThatOneHears(Pair* pair) {
  Posted posted;
  const std::string sent = Text(100, 'a');
  std::string got(100, ' ');
  Send(pair->zero.get(), kAtOne, sent, &posted, 0);
  Receive(pair->one.get(), kAtZero, &got, &posted, 1);
  ASSERT_TRUE(pair->Until([&] { return posted.over(1); }));
  EXPECT_EQ(got, sent);
}

// Much more than the kernel holds for a connection.
constexpr size_t kLarge = 32 << 20;

TEST(DataComesBeforeOrAfterItIsAskedFor) {
  Pair pair;
  Posted posted;
  const std::vector<std::string> sent = {Text(1, 'a'), Text(kLarge, 'b'), Text(70000, 'c'),
                                         Text(5, 'd')};
  std::vector<std::string> got;
  for (const std::string& text : sent) got.emplace_back(text.size(), ' ');
  Receive(pair.one.get(), kAtZero, &got[0], &posted, 10);
  for (size_t i = 0; i < sent.size(); ++i) {
    Send(pair.zero.get(), kAtOne, sent[i], &posted, static_cast<int64_t>(i));
  }
  ASSERT_TRUE(pair.Until([&] { return posted.over(3) && posted.over(10); }));
  for (size_t i = 1; i < got.size(); ++i) {
    Receive(pair.one.get(), kAtZero, &got[i], &posted, 10 + static_cast<int64_t>(i));
  }
  ASSERT_TRUE(pair.Until([&] { return posted.over(13); }));
  EXPECT_TRUE(got == sent);
}

TEST(WhatIsTakenBackIsTouchedNoMore) {
  Pair pair;
  Posted given_up;
  Posted posted;
  const std::string large = Text(kLarge, 'a');
  const std::string small = Text(10, 'x');
  std::string into(kLarge, ' ');
  {
    auto sent = std::make_unique<std::string>(large);
    auto half = std::make_unique<std::string>(kLarge, ' ');
    Send(pair.zero.get(), kAtOne, *sent, &given_up, 0);
    Receive(pair.one.get(), kAtZero, half.get(), &given_up, 1);
    ASSERT_TRUE(pair.Until([&] { return (*half)[1000] != ' '; }));
    EXPECT_FALSE(given_up.over(1));
    pair.zero->TakeBack(&given_up);
    pair.one->TakeBack(&given_up);
  }
  // What follows is not disturbed by that.
  Send(pair.zero.get(), kAtOne, small, &posted, 2);
  std::string got(small.size(), ' ');
  Receive(pair.one.get(), kAtZero, &got, &posted, 3);
  ASSERT_TRUE(pair.Until([&] { return posted.over(3); }));
  EXPECT_EQ(got, small);
  EXPECT_FALSE(given_up.over(0) || given_up.over(1));
}

TEST(UnlikeLengthsAreAnError) {
  Pair pair;
  Posted posted;
  const std::string sent = Text(6, 'a');
  std::string got(5, ' ');
  Receive(pair.one.get(), kAtZero, &got, &posted, 0);
  Send(pair.zero.get(), kAtOne, sent, &posted, 1);
  ASSERT_TRUE(pair.Until([&] { return posted.over(0); }));
  EXPECT_EQ(posted.result(0), std::string("rank 0 has sent 6 bytes where 5 were expected"));
}

TEST(APeerThatDiesIsNamed) {
  Pair pair;
  Posted posted;
  const std::string before = Text(10, 'a');
  const std::string large = Text(kLarge, 'b');
  std::string got(10, ' ');
  std::string never(10, ' ');
  Send(pair.one.get(), kAtZero, before, &posted, 0);
  ASSERT_TRUE(pair.Until([&] { return posted.over(0); }));
  Send(pair.zero.get(), kAtOne, large, &posted, 1);
  Receive(pair.zero.get(), kAtOne, &got, &posted, 2);
  Receive(pair.zero.get(), kAtOne, &never, &posted, 3);
  pair.one.reset();
  ASSERT_TRUE(pair.Until([&] { return posted.over(1) && posted.over(3); }));
  EXPECT_EQ(got, before);  // what it had sent before is there
  for (const int64_t id : {1, 3}) EXPECT_CONTAINS(posted.result(id), "TCP lost rank 1 on rank 0");
  EXPECT_CONTAINS(pair.zero->lost(1).message(), "may have died");
  EXPECT_ERROR(pair.zero->SendMessage(kAtOne, "word"), StatusCode::kAborted, "lost rank 1");
  Receive(pair.zero.get(), kAtOne, &never, &posted, 4);
  EXPECT_CONTAINS(posted.result(4), "lost rank 1");
}

TEST(APeerThatLeavesIsNotLost) {
  Pair pair;
  Posted posted;
  const std::string last = Text(100000, 'a');
  std::string got(last.size(), ' ');
  Send(pair.one.get(), kAtZero, last, &posted, 0);
  EXPECT_OK(pair.one->SendMessage(kAtZero, "the last"));
  ASSERT_TRUE(pair.Until([&] { return posted.over(0) && pair.one->MessagesFlushed(); }));
  std::thread leaves([&] {
    pair.one->Leave(std::chrono::seconds(5));
    pair.one.reset();
  });
  leaves.join();
  Receive(pair.zero.get(), kAtOne, &got, &posted, 1);
  ASSERT_TRUE(pair.Until([&] { return posted.over(1); }));
  EXPECT_EQ(got, last);
  Receive(pair.zero.get(), kAtOne, &got, &posted, 2);
  ASSERT_TRUE(pair.Until([&] { return posted.over(2); }));
  EXPECT_EQ(posted.result(2), std::string("rank 1 has left the job"));
  EXPECT_OK(pair.zero->lost(1));
  EXPECT_EQ(pair.zero->TakeMessage(0, 7)->bytes, std::string("the last"));
}

// Connects to rank 0 and says something that is no handshake; what it is sent before the end.
std::string Say(const std::string& address, const std::string& words, TcpMesh* zero) {
  Fd fd;
  EXPECT_OK(BeginConnect(address, &fd));
  EXPECT_EQ(send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(words.size()));
  shutdown(fd.get(), SHUT_WR);
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  char answer[16];
  while (Clock::now() < deadline) {
    zero->Progress(std::chrono::milliseconds(1));
    const ssize_t got = recv(fd.get(), answer, sizeof answer, MSG_DONTWAIT);
    if (got > 0) return std::string(answer, static_cast<size_t>(got));
    if (got == 0 || errno != EAGAIN) return "";
  }
  return "nothing";
}

// The next bytes that come, while rank 0 moves on; fewer at the end.
std::string Next(int fd, size_t count, TcpMesh* zero) {
  std::string came;
  for (const auto deadline = Clock::now() + std::chrono::seconds(20);
       came.size() < count && Clock::now() < deadline;) {
    zero->Progress(std::chrono::milliseconds(1));
    std::string part(count - came.size(), ' ');
    const ssize_t got = recv(fd, &part[0], part.size(), MSG_DONTWAIT);
    if (got > 0) came.append(part, 0, static_cast<size_t>(got));
    if (got == 0 || (got < 0 && errno != EAGAIN)) break;
  }
  return came;
}

bool SendAll(const Fd& fd, const std::string& words) {
  return send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(words.size());
}

constexpr TcpCall kFromOne{static_cast<uint32_t>(TcpTraffic::kControl), 1, 0};

// Connects to rank 0, and gets through the handshake, as far as that lets it.
struct Caller {
  Caller(const std::string& address, TcpMesh* zero, const TcpCall& call = kFromOne,
         const std::string& token = kToken) {
    std::string nonce, proof;
    EXPECT_OK(BeginConnect(address, &fd));
    EXPECT_OK(MakeNonce(&nonce));
    TcpCalling handshake(token, call, nonce);
    said = handshake.greeting();
    EXPECT_TRUE(SendAll(fd, said));
    answer = Next(fd.get(), handshake.missing(), zero);
    if (answer.size() < handshake.missing()) return;
    is_proved = handshake.Feed(answer, &proof).ok();
    if (!is_proved) proof.assign(kSha256Bytes, 'p');
    said += proof;
    (void)SendAll(fd, proof);
    is_let_in = Next(fd.get(), 1, zero) == std::string(1, kTcpWelcome);
  }

  Fd fd;
  std::string said;
  std::string answer;
  bool is_proved = false;  // rank 0 knows the token
  bool is_let_in = false;
};

// A peer is lost by one of its connections while data is under way over the other one.
TEST(WhatComesOfALostPeerGoesNowhere) {
  Pair pair;
  Posted posted;
  std::string got(10, ' ');
  Receive(pair.zero.get(), kAtOne, &got, &posted, 0);
  Caller control(pair.address, pair.zero.get());
  Caller data(pair.address, pair.zero.get(), {static_cast<uint32_t>(TcpTraffic::kData), 1, 0});
  ASSERT_TRUE(control.is_let_in && data.is_let_in);
  TcpHeader header;
  header.tag = kAtOne.tag;
  header.bytes = 10;
  const std::string head(reinterpret_cast<const char*>(&header), sizeof header);
  ASSERT_TRUE(SendAll(control.fd, head + Text(10, 'm')));
  ASSERT_TRUE(SendAll(data.fd, head + "first"));
  ASSERT_TRUE(pair.Until([&] { return got == "first     "; }));
  control.fd.Reset();
  ASSERT_TRUE(pair.Until([&] { return posted.over(0); }));
  EXPECT_CONTAINS(posted.result(0), "lost rank 1");
  (void)SendAll(data.fd, "later");  // its connection may have been closed
  for (int i = 0; i < 5; ++i) pair.zero->Progress(kTurn);
  EXPECT_EQ(got, std::string("first     "));
}

// A number that a peer sends is no reason to end: that peer is lost, and the others go on.
TEST(AFrameThatNoMemoryHoldsCostsItsPeerAlone) {
  for (const TcpTraffic traffic : {TcpTraffic::kControl, TcpTraffic::kData}) {
    for (const uint64_t bytes : {uint64_t{1} << 60, ~uint64_t{0}}) {
      const std::vector<TcpEndpoints> endpoints = EndpointsHere(3);
      Pair pair(endpoints);
      const Fd third(endpoints[2].listener);
      Caller caller(pair.address, pair.zero.get(), {static_cast<uint32_t>(traffic), 2, 0});
      ASSERT_TRUE(caller.is_let_in);
      TcpHeader header;
      header.tag = kAtOne.tag;
      header.bytes = bytes;
      const std::string head(reinterpret_cast<const char*>(&header), sizeof header);
      ASSERT_TRUE(SendAll(caller.fd, head));
      ASSERT_TRUE(pair.Until([&] { return !pair.zero->lost(2).ok(); }));
      EXPECT_CONTAINS(pair.zero->lost(2).message(),
                      "it announced a frame of " + std::to_string(bytes) + " bytes");
      EXPECT_OK(pair.zero->lost(1));
      ExpectThatOneHears(&pair);
    }
  }
}

TEST(StrangersAreRefusedAndHinderNobody) {
  Pair pair;
  TcpMesh* const zero = pair.zero.get();
  EXPECT_TRUE(Caller(pair.address, zero).is_let_in);
  const Caller wrong(pair.address, zero, kFromOne, std::string(kTcpTokenBytes, '?'));
  EXPECT_FALSE(wrong.answer.empty() || wrong.is_proved || wrong.is_let_in);
  EXPECT_TRUE(Caller(pair.address, zero, {0, 2, 0}).answer.empty());  // there is no rank 2
  // Meant for another one that had this address, and for another kind of traffic.
  EXPECT_TRUE(Caller(pair.address, zero, {0, 1, 1}).answer.empty());
  EXPECT_TRUE(Caller(pair.address, zero, {2, 1, 0}).answer.empty());
  for (int i = 0; i < 1000; ++i) {
    const std::string words = i % 2 == 0 ? "GET / HTTP/1.0\r\n\r\n" + Text(100, 'a') : Text(9, 'b');
    EXPECT_EQ(Say(pair.address, words, pair.zero.get()), std::string());
  }
  Posted posted;
  const std::string sent = Text(100, 'a');
  std::string got(100, ' ');
  Send(pair.one.get(), kAtZero, sent, &posted, 0);
  Receive(pair.zero.get(), kAtOne, &got, &posted, 1);
  ASSERT_TRUE(pair.Until([&] { return posted.over(1); }));
  EXPECT_EQ(got, sent);
  EXPECT_OK(pair.zero->lost(1));
}

TEST(TheTokenDoesNotTravelAndARecordingOpensNothing) {
  Pair pair;
  const Caller caller(pair.address, pair.zero.get());
  EXPECT_TRUE(caller.is_let_in);
  EXPECT_EQ((caller.said + caller.answer).find(kToken), std::string::npos);
  Fd fd;
  ASSERT_OK(BeginConnect(pair.address, &fd));
  ASSERT_TRUE(SendAll(fd, caller.said));
  const std::string came = Next(fd.get(), 1000, pair.zero.get());  // to the connection's end
  EXPECT_EQ(came.size(), caller.answer.size());
  EXPECT_TRUE(came != caller.answer);
}

// A handshake that comes byte by byte, and a frame at once with its last one.
TEST(AHandshakeMayComeInParts) {
  Pair pair;
  Posted posted;
  std::string got(5, ' ');
  Receive(pair.zero.get(), kAtOne, &got, &posted, 0);
  Fd fd;
  ASSERT_OK(BeginConnect(pair.address, &fd));
  TcpCalling handshake(kToken, {static_cast<uint32_t>(TcpTraffic::kData), 1, 0},
                       std::string(kTcpNonceBytes, 'n'));
  for (const char byte : handshake.greeting()) {
    ASSERT_TRUE(SendAll(fd, std::string(1, byte)));
    pair.zero->Progress(std::chrono::milliseconds(1));
  }
  std::string proof;
  ASSERT_OK(handshake.Feed(Next(fd.get(), handshake.missing(), pair.zero.get()), &proof));
  ASSERT_TRUE(SendAll(fd, proof.substr(0, 7)));
  pair.zero->Progress(std::chrono::milliseconds(1));
  TcpHeader header;
  header.tag = kAtOne.tag;
  header.bytes = got.size();
  const std::string head(reinterpret_cast<const char*>(&header), sizeof header);
  ASSERT_TRUE(SendAll(fd, proof.substr(7) + head + "frame"));
  ASSERT_TRUE(pair.Until([&] { return posted.over(0); }));
  EXPECT_EQ(got, std::string("frame"));
}

// Whoever answers at a rank's address without knowing the token gets nothing of its peer.
TEST(AListenerWithoutTheTokenIsNoPeer) {
  std::vector<TcpEndpoints> all_endpoints = EndpointsHere(2);
  const Fd impostor(all_endpoints[1].listener);
  const std::unique_ptr<TcpMesh> zero = Open(all_endpoints[0]);
  Posted posted;
  const std::string secret = "what rank 1 is to know";
  Send(zero.get(), kAtOne, secret, &posted, 0);
  std::string came;
  for (int connection = 0; connection < 3; ++connection) {
    Fd fd;
    for (const auto until = Clock::now() + std::chrono::seconds(20);
         !fd.valid() && Clock::now() < until;) {
      zero->Progress(std::chrono::milliseconds(1));
      ASSERT_TRUE(AcceptOne(impostor.get(), &fd));
    }
    ASSERT_TRUE(fd.valid());
    TcpListening knows_nothing(std::string(kTcpTokenBytes, '?'), 1, 2,
                               std::string(kTcpNonceBytes, 'n'));
    std::string reply(1, kTcpWelcome);
    const std::string greeting = Next(fd.get(), knows_nothing.missing(), zero.get());
    if (connection > 0) EXPECT_OK(knows_nothing.Feed(greeting, &reply));
    if (connection > 1) reply = std::string(kTcpNonceBytes + kSha256Bytes, kTcpBye);
    ASSERT_TRUE(SendAll(fd, reply));
    if (connection == 0) shutdown(fd.get(), SHUT_WR);
    came += Next(fd.get(), 1000, zero.get());
  }
  EXPECT_EQ(came, std::string());
  EXPECT_FALSE(posted.over(0));
  EXPECT_OK(zero->lost(1));
}

Fd ConnectTo(const std::string& address) {
  Fd fd;
  EXPECT_OK(BeginConnect(address, &fd));
  return fd;
}

void TestAPairSendsBeside(Pair* pair) {
  Posted posted;
  const std::string sent = Text(100, 'a');
  std::string got(100, ' ');
  Send(pair->one.get(), kAtZero, sent, &posted, 0);
  Receive(pair->zero.get(), kAtOne, &got, &posted, 1);
  ASSERT_TRUE(pair->Until([&] { return posted.over(1); }));
  EXPECT_EQ(got, sent);
}

// Connections that say nothing take few descriptors of a rank, and do not keep a peer out.
TEST(StrangersThatSayNothingAreFew) {
  Pair pair;
  std::vector<Fd> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(ConnectTo(pair.address));
    pair.zero->Progress(std::chrono::nanoseconds(0));
  }
  TestAPairSendsBeside(&pair);
  int open = 0;
  for (const Fd& stranger : strangers) {
    char byte = 0;
    const ssize_t got = recv(stranger.get(), &byte, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) ++open;
  }
  EXPECT_TRUE(open >= 1 && open <= 40);
}

// Without a free descriptor a rank accepts nothing, does not spin, and goes on once there is one.
TEST(AProcessShortOfDescriptorsRests) {
  Pair pair;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const Fd stranger = ConnectTo(pair.address);
  const Fd next(dup(stranger.get()));
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next.get());  // no number below it is free
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  int rounds = 0;
  for (const auto until = Clock::now() + std::chrono::milliseconds(500); Clock::now() < until;) {
    pair.zero->Progress(std::chrono::milliseconds(500));
    ++rounds;
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(rounds < 50);
  TestAPairSendsBeside(&pair);
}

// A process has a mesh for each generation of its job, and listens at one port for all of them.
TEST(WhoComesTooEarlyIsLeftToTheNextMesh) {
  std::vector<TcpEndpoints> all_endpoints = EndpointsHere(2);
  std::vector<TcpEndpoints> later = all_endpoints;
  for (TcpEndpoints& endpoints : later) endpoints.token[0] = 'u';
  later[0].listener = dup(all_endpoints[0].listener);
  const std::unique_ptr<TcpMesh> before = Open(all_endpoints[0]);
  Pair pair(later);
  Posted posted;
  const std::string sent = Text(100, 'a');
  std::string got(100, ' ');
  Send(pair.one.get(), kAtZero, sent, &posted, 0);
  Receive(pair.zero.get(), kAtOne, &got, &posted, 1);
  before->Progress(std::chrono::seconds(30));  // the connection is taken in, and no more
  before->StopListening();
  // Else it would wait for a word of welcome, for as long as an engine may be at rest.
  ASSERT_TRUE(pair.Until([&] { return posted.over(1); }));
  EXPECT_EQ(got, sent);
}

// As docker0 does, which has the same address on every host: somebody else answers, or nobody.
TEST(AddressesThatLeadElsewhereAreLeftOut) {
  std::vector<TcpEndpoints> all_endpoints = EndpointsHere(2);
  std::string closed;
  close(ListenHere(&closed));
  const std::string own = all_endpoints[0].addresses[0];
  const std::string right = all_endpoints[0].addresses[1];
  for (TcpEndpoints& endpoints : all_endpoints) {
    endpoints.addresses[1] = closed + "," + own + ",no number:5," + right;
  }
  Pair pair(all_endpoints);
  ExpectThatOneHears(&pair);
}

TEST(AddressesMayBeOfIPv6) {
  std::vector<TcpEndpoints> all_endpoints = EndpointsHere(2);
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in6 name = {};
  name.sin6_family = AF_INET6;
  name.sin6_addr = in6addr_loopback;
  socklen_t size = sizeof name;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&name), size) != 0) {
    close(fd);
    return;  // a machine without it
  }
  EXPECT_EQ(listen(fd, 64), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
  const std::string port = std::to_string(ntohs(name.sin6_port));
  close(all_endpoints[1].listener);
  all_endpoints[1].listener = fd;
  for (const std::string& address : {"::1:" + port, "[::1]:" + port}) {
    for (TcpEndpoints& endpoints : all_endpoints) endpoints.addresses[1] = address;
    std::vector<TcpEndpoints> copies = all_endpoints;
    for (TcpEndpoints& copy : copies) copy.listener = dup(copy.listener);
    Pair pair(copies);
    ExpectThatOneHears(&pair);
  }
  for (const TcpEndpoints& endpoints : all_endpoints) close(endpoints.listener);
}

TEST(ATokenOfAnotherLengthIsNone) {
  std::vector<TcpEndpoints> all_endpoints = EndpointsHere(1);
  all_endpoints[0].token = "short";
  std::unique_ptr<TcpMesh> mesh;
  EXPECT_ERROR(TcpMesh::Open(all_endpoints[0], &mesh), StatusCode::kInvalidArgument, "token");
}

TEST(WakeEndsAWait) {
  Pair pair;
  pair.zero->Wake();
  pair.zero->Progress(std::chrono::hours(1));  // at once
  std::thread wakes([&] {
    std::this_thread::sleep_for(kTurn);
    pair.zero->Wake();
  });
  pair.zero->Progress(std::chrono::hours(1));
  wakes.join();
}

// Rank 2 sends only once it has heard of rank 0, which waits for rank 1 and sleeps by then.
TEST(WhoWaitsForOneMessageGoesOnWithIt) {
  const std::vector<TcpEndpoints> all_endpoints = EndpointsHere(3);
  RunThreads(3, [&](int rank) {
    const std::unique_ptr<TcpMesh> mesh = Open(all_endpoints[static_cast<size_t>(rank)]);
    TcpPort port;
    port.mesh = mesh.get();
    port.tag = 7;
    port.members = {0, 1, 2};
    port.rank = rank;
    {
      TcpTransfers transfers(port);
      transfers.SetOnWait([](const Wait& wait) {
        return wait.seconds < 20.0 ? Status::Ok() : Status::Aborted("it sleeps on");
      });
      ASSERT_OK(transfers.Begin("test"));
      char sent = 'a';
      char got[2] = {};
      if (rank == 0) {
        const auto first = transfers.Receive(1, &got[0], 1);
        (void)transfers.Receive(2, &got[1], 1);
        EXPECT_TRUE(transfers.Wait(first));
        (void)transfers.Send(2, &sent, 1);
      } else if (rank == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        (void)transfers.Send(0, &sent, 1);
      } else {
        EXPECT_TRUE(transfers.Wait(transfers.Receive(0, &got[0], 1)));
        (void)transfers.Send(0, &sent, 1);
      }
      EXPECT_OK(transfers.End());
    }
    mesh->Leave(std::chrono::seconds(5));
  });
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
