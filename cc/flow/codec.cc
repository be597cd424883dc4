#include "cc/flow/codec.h"

#include <utility>

#include "cc/base/wire.h"

namespace tfhvd {
namespace {

constexpr uint8_t kAnnouncementTag = 0xA1;
constexpr uint8_t kAgreementTag = 0xA2;

// Flags of an announcement.
constexpr uint8_t kLeaving = 1;
constexpr uint8_t kEnded = 2;
constexpr uint8_t kWaits = 4;

// Kinds and flags of an agreement's item.
constexpr uint8_t kInFull = 0;
constexpr uint8_t kRepeat = 1;
constexpr uint8_t kPlaceholder = 2;
constexpr uint8_t kWaited = 4;  // flag: the last rank differs from that of the item before

void Write(WireWriter* w, const Key& key) {
  w->Signed(key.process_set);
  w->String(key.name);
}
Key ReadKey(WireReader* r) {
  Key key;
  key.process_set = r->Int32();
  key.name = r->String();
  return key;
}

void Write(WireWriter* w, const Request& request) {
  Write(w, request.key);
  w->Byte(static_cast<uint8_t>(request.kind));
  w->Byte(static_cast<uint8_t>(request.device));
  w->Byte(static_cast<uint8_t>(request.reduction.op));
  w->Double(request.reduction.prescale);
  w->Double(request.reduction.postscale);
  w->Signed(request.root);
  w->List(request.tensors, [w](const TensorSpec& t) {
    w->Byte(static_cast<uint8_t>(t.dtype));
    w->Numbers(t.shape);
  });
  w->List(request.members, [w](int64_t m) { w->Unsigned(static_cast<uint64_t>(m)); });
  Write(w, request.fault);
  w->Signed(request.weight);
  w->Byte(request.stops ? 1 : 0);
  w->List(request.labels, [w](const std::string& label) { w->String(label); });
}
Request ReadRequest(WireReader* r) {
  Request request;
  request.key = ReadKey(r);
  request.kind = r->Enum<Collective>(kNumCollectives);
  request.device = r->Enum<DeviceKind>(kNumDeviceKinds);
  request.reduction.op = r->Enum<ReduceOp>(kNumReduceOps);
  request.reduction.prescale = r->Double();
  request.reduction.postscale = r->Double();
  request.root = r->Int32();
  request.tensors = r->List([r] {
    TensorSpec t;
    t.dtype = r->Enum<DType>(kNumDTypes);
    t.shape = r->Numbers();
    return t;
  });
  request.members = r->List([r] { return static_cast<int64_t>(r->Unsigned()); });
  request.fault = ReadStatus(r);
  request.weight = r->Signed();
  request.stops = r->Bool();
  request.labels = r->List([r] { return r->String(); });
  return request;
}

void Write(WireWriter* w, const Decision& decision) {
  Write(w, decision.key);
  Write(w, decision.verdict);
  w->List(decision.first_dims, [w](const std::vector<int64_t>& dims) { w->Numbers(dims); });
  w->Numbers(decision.weights);
  w->Byte(decision.stopping ? 1 : 0);
  w->Byte(decision.stop_requested ? 1 : 0);
  w->Signed(decision.number);
}
Decision ReadDecision(WireReader* r) {
  Decision decision;
  decision.key = ReadKey(r);
  decision.verdict = ReadStatus(r);
  decision.first_dims = r->List([r] { return r->Numbers(); });
  decision.weights = r->Numbers();
  decision.stopping = r->Bool();
  decision.stop_requested = r->Bool();
  decision.number = r->Signed();
  return decision;
}

Status Finish(const WireReader& r, bool tag_ok, const char* what) {
  if (r.ok() && tag_ok && r.at_end()) return Status::Ok();
  return Status::Internal(std::string("a negotiation message is damaged. Expected: ") + what +
                          ". Do all ranks run the same version of tfhvd?");
}

}  // namespace

std::string Encode(const Announcement& a) {
  WireWriter w;
  w.Byte(kAnnouncementTag);
  w.Unsigned(a.seen);
  w.List(a.known, [&w](CacheId id) { w.Unsigned(id); });
  w.List(a.requests, [&w](const Request& q) { Write(&w, q); });
  w.List(a.withdrawn, [&w](const Key& k) { Write(&w, k); });
  const bool waits = a.waited_ms > 0;
  w.Byte((a.leaving ? kLeaving : 0) | (a.ended ? kEnded : 0) | (waits ? kWaits : 0));
  w.String(a.leave_reason);
  if (a.ended) w.Unsigned(2 * static_cast<uint64_t>(a.ended_rounds) + (a.ended_late ? 1 : 0));
  if (a.ended) w.Unsigned(static_cast<uint64_t>(a.ended_step_ns));
  if (waits) w.Unsigned(static_cast<uint64_t>(a.waited_ms));
  if (waits) w.String(a.waits_in);
  return w.Take();
}

Status Decode(const std::string& bytes, Announcement* a) {
  WireReader r(bytes);
  const bool tag_ok = r.Byte() == kAnnouncementTag;
  a->seen = r.Unsigned();
  a->known = r.List([&r] { return r.Unsigned(); });
  a->requests = r.List([&r] { return ReadRequest(&r); });
  a->withdrawn = r.List([&r] { return ReadKey(&r); });
  const uint8_t flags = r.Enum<uint8_t>(kLeaving + kEnded + kWaits + 1);
  a->leaving = (flags & kLeaving) != 0;
  a->ended = (flags & kEnded) != 0;
  a->leave_reason = r.String();
  const uint64_t end = a->ended ? r.Unsigned() : 0;
  a->ended_rounds = static_cast<int64_t>(end / 2);
  a->ended_late = end % 2 == 1;
  a->ended_step_ns = a->ended ? static_cast<int64_t>(r.Unsigned()) : 0;
  a->waited_ms = (flags & kWaits) != 0 ? static_cast<int64_t>(r.Unsigned()) : 0;
  a->waits_in = (flags & kWaits) != 0 ? r.String() : "";
  return Finish(r, tag_ok, "an announcement");
}

std::string Encode(const Agreement& a) {
  WireWriter w;
  w.Byte(kAgreementTag);
  w.Unsigned(a.sequence);
  int waited_for = -1;
  w.List(a.items, [&w, &waited_for](const Agreement::Item& item) {
    const bool other = std::exchange(waited_for, item.waited_for) != item.waited_for;
    w.Unsigned(item.id);
    const uint8_t how = item.repeat ? kRepeat : item.placeholder ? kPlaceholder : kInFull;
    w.Byte(how | (other ? kWaited : 0));
    if (!item.repeat) Write(&w, item.decision);
    if (item.placeholder) Write(&w, item.request);
    if (other) w.Signed(waited_for);
  });
  w.List(a.evicted, [&w](CacheId id) { w.Unsigned(id); });
  w.List(a.withdrawn, [&w](const Key& k) { Write(&w, k); });
  w.Byte(a.confirm ? 1 : 0);
  w.Byte(a.everyone_left ? 1 : 0);
  w.List(a.lock,
         [&w](const Bucket& bucket) { w.List(bucket, [&w](CacheId id) { w.Unsigned(id); }); });
  if (a.lock.empty()) return w.Take();
  w.Unsigned(static_cast<uint64_t>(a.lock_term));
  w.Unsigned(static_cast<uint64_t>(a.lock_fusion.threshold));
  w.Unsigned(static_cast<uint64_t>(a.lock_fusion.alone_from));
  return w.Take();
}

Status Decode(const std::string& bytes, Agreement* a) {
  WireReader r(bytes);
  const bool tag_ok = r.Byte() == kAgreementTag;
  a->sequence = r.Unsigned();
  int waited_for = -1;
  a->items = r.List([&r, &waited_for] {
    Agreement::Item item;
    item.id = r.Unsigned();
    const uint8_t flags = r.Enum<uint8_t>(kPlaceholder + kWaited + 1);
    const uint8_t how = flags % kWaited;
    if (how > kPlaceholder) r.Fail();
    item.repeat = how == kRepeat;
    item.placeholder = how == kPlaceholder;
    if (!item.repeat) item.decision = ReadDecision(&r);
    if (item.placeholder) item.request = ReadRequest(&r);
    if (flags >= kWaited) waited_for = r.Int32();
    item.waited_for = waited_for;
    return item;
  });
  a->evicted = r.List([&r] { return r.Unsigned(); });
  a->withdrawn = r.List([&r] { return ReadKey(&r); });
  a->confirm = r.Bool();
  a->everyone_left = r.Bool();
  a->lock = r.List([&r] { return r.List([&r] { return r.Unsigned(); }); });
  a->lock_term = 0;
  a->lock_fusion = FusionLimits();
  if (!a->lock.empty()) {
    a->lock_term = static_cast<int64_t>(r.Unsigned());
    a->lock_fusion.threshold = static_cast<int64_t>(r.Unsigned());
    a->lock_fusion.alone_from = static_cast<int64_t>(r.Unsigned());
  }
  return Finish(r, tag_ok, "an agreement");
}

std::string Encode(const Alarm& alarm) {
  WireWriter w;
  w.Byte(kAlarmTag);
  w.Byte(static_cast<uint8_t>(alarm.why.code()));
  w.String(alarm.why.message());
  return w.Take();
}

Status Decode(const std::string& bytes, Alarm* alarm) {
  WireReader r(bytes);
  const bool tag_ok = r.Byte() == kAlarmTag;
  const auto code = r.Enum<StatusCode>(kStatusCodes);
  alarm->why = Status(code, r.String());
  return Finish(r, tag_ok && code != StatusCode::kOk, "an alarm");
}

}  // namespace tfhvd
