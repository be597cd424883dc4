// The wire format: every field survives, damaged bytes are refused without harm, and the example of
// cc/docs/wire-format.md is what Encode makes.
#include "cc/flow/codec.h"

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cc/comm/control_plane.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

bool Same(const Announcement& a, const Announcement& b) {
  return a.seen == b.seen && a.known == b.known && a.requests == b.requests &&
         a.withdrawn == b.withdrawn && a.leaving == b.leaving && a.leave_reason == b.leave_reason;
}

bool Same(const Agreement& a, const Agreement& b) {
  if (a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (a.items[i].id != b.items[i].id || a.items[i].repeat != b.items[i].repeat ||
        a.items[i].placeholder != b.items[i].placeholder ||
        a.items[i].waited_for != b.items[i].waited_for ||
        !(a.items[i].request == b.items[i].request) ||
        !(a.items[i].decision == b.items[i].decision)) {
      return false;
    }
  }
  return a.sequence == b.sequence && a.evicted == b.evicted && a.withdrawn == b.withdrawn &&
         a.confirm == b.confirm && a.everyone_left == b.everyone_left && a.lock == b.lock &&
         a.lock_term == b.lock_term && a.lock_fusion == b.lock_fusion;
}

template <typename M>
void ExpectRoundTrip(const M& message) {
  M back;
  ASSERT_OK(Decode(Encode(message), &back));
  EXPECT_TRUE(Same(message, back));
}

// Random messages whose fields reach their extremes.
class Source {
 public:
  explicit Source(uint32_t seed) : random_(seed) {}

  uint64_t Below(uint64_t n) { return random_() % n; }
  bool Coin() { return Below(2) == 0; }
  int64_t Integer() {
    switch (Below(5)) {
      case 0:
        return kLeast;
      case 1:
        return kMost;
      case 2:
        return static_cast<int64_t>(random_());
      default:
        return static_cast<int64_t>(Below(300)) - 150;
    }
  }
  uint64_t Unsigned() { return Coin() ? static_cast<uint64_t>(Integer()) : Below(3); }
  CacheId Id() { return Coin() ? UINT64_MAX - Below(2) : static_cast<CacheId>(Below(200)); }
  std::string Text() {
    std::string s;
    for (uint64_t n = Below(4) == 0 ? Below(300) : Below(8); n > 0; --n) {
      s.push_back(static_cast<char>(Below(256)));
    }
    return s;
  }
  double Factor() {
    static const double kFactors[] = {1.0,
                                      0.0,
                                      -0.0,
                                      0.5,
                                      5e-324,
                                      -1.7976931348623157e308,
                                      std::numeric_limits<double>::infinity()};
    return kFactors[Below(7)];
  }
  template <typename F>
  auto List(F item) -> std::vector<decltype(item())> {
    std::vector<decltype(item())> items;
    for (uint64_t n = Below(4); n > 0; --n) items.push_back(item());
    return items;
  }
  Status AStatus() { return Status(static_cast<StatusCode>(Below(kStatusCodes)), Text()); }
  Key AKey() { return {Coin() ? INT32_MIN : static_cast<int32_t>(Below(9)), Text()}; }
  Shape AShape() {
    return List([this] { return Integer(); });
  }
  Request ARequest() {
    Request q;
    q.key = AKey();
    q.kind = static_cast<Collective>(Below(kNumCollectives));
    q.device = static_cast<DeviceKind>(Below(kNumDeviceKinds));
    q.reduction = {static_cast<ReduceOp>(Below(kNumReduceOps)), Factor(), Factor()};
    q.root = Coin() ? INT32_MAX : static_cast<int32_t>(Below(9)) - 4;
    q.tensors =
        List([this] { return TensorSpec{static_cast<DType>(Below(kNumDTypes)), AShape()}; });
    q.members = AShape();
    q.fault = AStatus();
    q.weight = Integer();
    q.stops = Coin();
    q.labels = List([this] { return Text(); });
    return q;
  }
  Decision ADecision() {
    Decision d;
    d.key = AKey();
    d.verdict = AStatus();
    d.first_dims = List([this] { return AShape(); });
    d.weights = AShape();
    d.stopping = Coin();
    d.stop_requested = Coin();
    d.number = Integer();
    return d;
  }
  Announcement AnAnnouncement() {
    Announcement a;
    a.seen = Unsigned();
    a.known = List([this] { return Id(); });
    a.requests = List([this] { return ARequest(); });
    a.withdrawn = List([this] { return AKey(); });
    a.leaving = Coin();
    a.leave_reason = Text();
    return a;
  }
  Agreement AnAgreement() {
    Agreement a;
    a.sequence = Unsigned();
    a.items = List([this] {
      Agreement::Item item;
      item.id = Id();
      item.repeat = Coin();
      if (!item.repeat) item.decision = ADecision();
      item.placeholder = !item.repeat && Coin();
      if (item.placeholder) item.request = ARequest();
      item.waited_for = Coin() ? -1 : Coin() ? INT32_MAX : static_cast<int>(Below(3));
      return item;
    });
    a.evicted = List([this] { return Id(); });
    a.withdrawn = List([this] { return AKey(); });
    a.confirm = Coin();
    a.everyone_left = Coin();
    a.lock = List([this] { return List([this] { return Id(); }); });
    if (!a.lock.empty()) {
      for (int64_t* number : {&a.lock_term, &a.lock_fusion.threshold, &a.lock_fusion.alone_from}) {
        *number = static_cast<int64_t>(Unsigned() >> 1);
      }
    }
    return a;
  }
  std::string Noise() {
    std::string s = Text();
    if (!s.empty() && Coin()) s[0] = static_cast<char>(Coin() ? 0xA1 : 0xA2);
    return s;
  }
  // What a broken sender or line could make of a message.
  std::string Damaged(std::string bytes) {
    switch (Below(4)) {
      case 0:  // cut off
        bytes.resize(Below(bytes.size()));
        break;
      case 1:  // bits flipped
        for (uint64_t n = 1 + Below(3); n > 0; --n) {
          bytes[Below(bytes.size())] ^= static_cast<char>(1 << Below(8));
        }
        break;
      case 2: {  // a huge length somewhere
        std::string huge(1 + Below(9), '\xff');
        huge.push_back('\x01');
        bytes.insert(Below(bytes.size() + 1), huge);
        break;
      }
      default:  // a piece of something else
        bytes.insert(Below(bytes.size() + 1), Text());
    }
    return bytes;
  }

 private:
  std::mt19937_64 random_;
};

// Whatever decodes is a message: its own encoding gives it back, bit for bit.
template <typename M>
int CountDecoded(const std::string& bytes) {
  M message;
  if (!Decode(bytes, &message).ok()) return 0;
  const std::string encoded = Encode(message);
  M again;
  EXPECT_OK(Decode(encoded, &again));
  EXPECT_TRUE(Encode(again) == encoded);  // NaN factors: not Same
  return 1;
}

Announcement AnnouncementOfReadme() {
  Request request;
  request.key.name = "w";
  request.tensors.push_back({DType::kFloat32, {2, 3}});
  Announcement a;
  a.seen = 7;
  a.known = {300};
  a.requests.push_back(request);
  return a;
}

TEST(ReadmesExampleIsWhatIsSent) {
  const std::vector<uint8_t> bytes = {
      0xA1,                                   // an announcement
      7,                                      // seen
      1,    0xAC, 0x02,                       // known: one id, 300
      1,                                      // requests: one
      0,    1,    'w',                        //   key: process set 0, name "w"
      0,    0,    1,                          //   allreduce, on the CPU, Sum
      0,    0,    0,    0, 0, 0, 0xF0, 0x3F,  //   prescale 1.0
      0,    0,    0,    0, 0, 0, 0xF0, 0x3F,  //   postscale 1.0
      0,                                      //   root
      1,    6,    2,    4, 6,                 //   one tensor: float32, 2 dimensions: 2, 3
      0,                                      //   no members
      0,    0,                                //   no fault
      1,    0,                                //   unweighted (-1), stops nobody
      0,                                      //   no labels
      0,                                      // withdrawn: none
      0,    0,                                // not leaving, no reason
  };
  const std::string encoded = Encode(AnnouncementOfReadme());
  EXPECT_EQ(std::vector<uint8_t>(encoded.begin(), encoded.end()), bytes);
  ExpectRoundTrip(AnnouncementOfReadme());
}

TEST(EmptyMessagesAreFewBytes) {
  ExpectRoundTrip(Announcement());
  ExpectRoundTrip(Agreement());
  EXPECT_EQ(Encode(Announcement()).size(), size_t{7});
  EXPECT_EQ(Encode(Agreement()).size(), size_t{8});
}

TEST(AStepOfKnownTensorsIsFewBytes) {
  Announcement a;
  for (CacheId id = 1; id <= 100; ++id) a.known.push_back(id);
  EXPECT_EQ(Encode(a).size(), size_t{107});  // one byte each
}

// Mostly it is one rank that comes last: it is said once for all that waited for it.
TEST(WhomCollectivesWaitedForIsFewBytes) {
  Agreement a;
  for (CacheId id = 1; id <= 100; ++id) {
    a.items.emplace_back();
    a.items.back().id = id;
    a.items.back().repeat = true;
  }
  EXPECT_EQ(Encode(a).size(), size_t{208});  // two bytes each
  for (Agreement::Item& item : a.items) item.waited_for = 63;
  EXPECT_EQ(Encode(a).size(), size_t{209});
  ExpectRoundTrip(a);
  a.items[7].waited_for = -1;
  EXPECT_EQ(Encode(a).size(), size_t{211});
  ExpectRoundTrip(a);
}

TEST(ExtremesSurvive) {
  Announcement a = AnnouncementOfReadme();
  a.seen = UINT64_MAX;
  a.known = {0, 1, 127, 128, UINT32_MAX, uint64_t{UINT32_MAX} + 1, UINT64_MAX};
  a.requests[0].key = {INT32_MIN, std::string("\0\xff\n", 3)};
  a.requests[0].root = INT32_MAX;
  a.requests[0].tensors[0].shape = {kLeast, -1, 0, kMost};
  a.withdrawn = {{INT32_MAX, ""}, {-1, std::string(100000, 'x')}};
  a.leaving = true;
  a.leave_reason = "why";
  ExpectRoundTrip(a);
}

TEST(RandomMessagesSurvive) {
  Source source(1);
  for (int i = 0; i < testing::Sweep(10000); ++i) {
    ExpectRoundTrip(source.AnAnnouncement());
    ExpectRoundTrip(source.AnAgreement());
  }
}

TEST(EveryTruncationAndEveryAdditionIsRefused) {
  const std::string whole = Encode(AnnouncementOfReadme());
  Announcement a;
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_ERROR(Decode(whole.substr(0, n), &a), StatusCode::kInternal, "an announcement");
  }
  EXPECT_ERROR(Decode(whole + '\0', &a), StatusCode::kInternal, "damaged");
}

TEST(WhatARankSaysOfItselfSurvives) {
  for (const bool ended : {false, true}) {
    for (const int64_t waited : {0, 1, 300000}) {
      Announcement a;
      a.ended = ended;
      a.ended_rounds = ended ? 12345 : 0;
      a.ended_late = ended && waited > 1;
      a.ended_step_ns = ended ? waited * 1000 : 0;
      a.waited_ms = waited;
      a.waits_in = waited > 0 ? "allreduce 'x'" : "";
      Announcement back;
      ASSERT_OK(Decode(Encode(a), &back));
      EXPECT_EQ(back.ended, a.ended);
      EXPECT_EQ(back.ended_rounds, a.ended_rounds);
      EXPECT_EQ(back.ended_late, a.ended_late);
      EXPECT_EQ(back.ended_step_ns, a.ended_step_ns);
      EXPECT_EQ(back.waited_ms, a.waited_ms);
      EXPECT_EQ(back.waits_in, a.waits_in);
    }
  }
}

TEST(AnAlarmSurvivesAndIsKnownByItsFirstByte) {
  const Alarm alarm{Status::Aborted("rank 3 has died")};
  EXPECT_TRUE(IsAlarm(Encode(alarm)));
  EXPECT_FALSE(IsAlarm(Encode(Agreement())) || IsAlarm(Encode(Announcement())) || IsAlarm(""));
  Alarm back;
  ASSERT_OK(Decode(Encode(alarm), &back));
  EXPECT_EQ(back.why, alarm.why);
  EXPECT_ERROR(Decode(std::string("\xA3\0\0", 3), &back), StatusCode::kInternal, "an alarm");
}

TEST(OneKindIsNotTakenForTheOther) {
  Announcement announcement;
  Agreement agreement;
  EXPECT_ERROR(Decode(Encode(Agreement()), &announcement), StatusCode::kInternal, "same version");
  EXPECT_ERROR(Decode(Encode(Announcement()), &agreement), StatusCode::kInternal, "an agreement");
}

TEST(ValuesOutOfRangeAreRefused) {
  const std::string whole = Encode(AnnouncementOfReadme());
  const size_t enums[] = {9, 10, 11, 30};  // kind, device, op, dtype
  const char limits[] = {kNumCollectives, kNumDeviceKinds, kNumReduceOps, kNumDTypes};
  for (int i = 0; i < 4; ++i) {
    Announcement a;
    std::string bytes = whole;
    bytes[enums[i]] = static_cast<char>(limits[i] - 1);
    EXPECT_OK(Decode(bytes, &a));
    bytes[enums[i]] = limits[i];
    EXPECT_FALSE(Decode(bytes, &a).ok());
  }
  Announcement a;
  // A number of 65 bits, an id of as many, a boolean of 2.
  EXPECT_FALSE(
      Decode("\xA1\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02" + std::string(5, '\0'), &a).ok());
  EXPECT_OK(Decode("\xA1\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + std::string(5, '\0'), &a));
  const std::string known("\xA1\0\1", 3);
  const std::string nine(9, '\xff');
  EXPECT_FALSE(Decode(known + nine + "\x02" + std::string(4, '\0'), &a).ok());
  EXPECT_OK(Decode(known + nine + "\x01" + std::string(4, '\0'), &a));
  EXPECT_FALSE(Decode(std::string("\xA1\0\0\0\0\2\0", 7), &a).ok());
  // What an item is: as last agreed, with a rank behind it (4) or without; nothing is 3 or 8.
  const std::string end(5, '\0');
  Agreement agreement;
  EXPECT_OK(Decode(std::string({'\xA2', 0, 1, 9, 1}) + end, &agreement));
  EXPECT_OK(Decode(std::string({'\xA2', 0, 1, 9, 5, 2}) + end, &agreement));
  EXPECT_EQ(agreement.items[0].waited_for, 1);
  for (const char how : {3, 7, 8, 9}) {
    EXPECT_FALSE(Decode(std::string({'\xA2', 0, 1, 9, how}) + end, &agreement).ok());
    EXPECT_FALSE(Decode(std::string({'\xA2', 0, 1, 9, how, 2}) + end, &agreement).ok());
  }
}

TEST(HugeLengthsAllocateNothing) {
  // Each list and each string claims 2^62 items. An attempt to make room would throw.
  const std::string huge("\xff\xff\xff\xff\xff\xff\xff\xff\x3f", 9);
  for (size_t zeros = 0; zeros < 12; ++zeros) {
    for (const char* tag : {"\xA1", "\xA2"}) {
      const std::string bytes = tag + std::string(zeros, '\0') + huge + std::string(40, '\0');
      Announcement announcement;
      Agreement agreement;
      EXPECT_FALSE(Decode(bytes, &announcement).ok() && Decode(bytes, &agreement).ok());
    }
  }
}

TEST(DamageIsHarmless) {
  Source source(2);
  int decoded = 0;
  for (int i = 0; i < testing::Sweep(50000); ++i) {
    const std::string a = source.Damaged(Encode(source.AnAnnouncement()));
    const std::string b = source.Damaged(Encode(source.AnAgreement()));
    decoded += CountDecoded<Announcement>(a) + CountDecoded<Agreement>(b);
    const std::string noise = source.Noise();
    decoded += CountDecoded<Announcement>(noise) + CountDecoded<Agreement>(noise);
  }
  // Flips inside of values and texts: the mutants are tried as well.
  EXPECT_TRUE(decoded > testing::Sweep(1000));
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
