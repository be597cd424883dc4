// The calls of calls.h, as XLA's runtime calls them. Of XLA this sees its interface for foreign
// functions alone, which consists of headers without anything to link.
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/process/process.h"
#include "cc/process/tickets.h"
#include "cc/xla/calls.h"
#include "cc/xla/request_text.h"
#include "xla/ffi/api/ffi.h"

namespace xla::ffi {

// In libtensorflow_cc; xla/ffi/ffi_api.h declares it among much that TensorFlow's wheels lack.
const XLA_FFI_Api* GetXlaFfiApi();

}  // namespace xla::ffi

namespace tfhvd {
namespace {

namespace ffi = xla::ffi;

ffi::Error ToError(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return ffi::Error::Success();
    case StatusCode::kInvalidArgument:
      return ffi::Error(ffi::ErrorCode::kInvalidArgument, status.message());
    case StatusCode::kFailedPrecondition:
      return ffi::Error(ffi::ErrorCode::kFailedPrecondition, status.message());
    case StatusCode::kAborted:
      return ffi::Error(ffi::ErrorCode::kAborted, status.message());
    case StatusCode::kCancelled:
      return ffi::Error(ffi::ErrorCode::kCancelled, status.message());
    case StatusCode::kUnavailable:
      return ffi::Error(ffi::ErrorCode::kUnavailable, status.message());
    case StatusCode::kInternal:
      return ffi::Error(ffi::ErrorCode::kInternal, status.message());
  }
  return ffi::Error(ffi::ErrorCode::kUnknown, status.message());
}

ffi::Error Malformed() {
  return ffi::Error(ffi::ErrorCode::kInternal, "A compiled call of tfhvd's is malformed.");
}

bool Read(const ffi::RemainingArgs& args, size_t index, void** data) {
  const ffi::ErrorOr<ffi::AnyBuffer> buffer = args.get<ffi::AnyBuffer>(index);
  if (buffer.has_value()) *data = buffer.value().untyped_data();
  return buffer.has_value();
}

ffi::Error Begin(ffi::Result<ffi::BufferR0<ffi::S64>> run) {
  *run->typed_data() = ProcessTickets().Begin();
  return ffi::Error::Success();
}

ffi::Error Start(ffi::RemainingArgs args, ffi::RemainingRets rets, std::string_view request,
                 bool anonymous) {
  Entry entry;
  entry.anonymous = anonymous;
  const Status read = FromText(request, &entry.request);
  if (!read.ok()) return ToError(read);
  const size_t count = entry.request.tensors.size();
  if (args.size() != count + 1 || rets.size() != count + 1) return Malformed();
  std::vector<Tickets::Result> results(count);
  for (size_t i = 0; i < count; ++i) {
    void* input = nullptr;
    auto result = rets.get<ffi::AnyBuffer>(i);
    if (!Read(args, i, &input) || !result.has_value()) return Malformed();
    entry.inputs.push_back(input);
    const auto dimensions = result.value()->dimensions();
    results[i].data = result.value()->untyped_data();
    results[i].shape.assign(dimensions.begin(), dimensions.end());
  }
  void* run = nullptr;
  auto ticket = rets.get<ffi::AnyBuffer>(count);
  if (!Read(args, count, &run) || !ticket.has_value()) return Malformed();
  *static_cast<Tickets::Id*>(ticket.value()->untyped_data()) =
      ProcessTickets().Start(*static_cast<const Tickets::Run*>(run), ProcessEngine(),
                             std::move(entry), std::move(results));
  return ffi::Error::Success();
}

ffi::Error Done(ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t results,
                int64_t tickets) {
  std::vector<void*> outputs;
  std::vector<Tickets::Id> ids;
  for (int64_t i = 0; i < results + tickets; ++i) {
    void* data = nullptr;
    if (!Read(args, static_cast<size_t>(i), &data)) return Malformed();
    if (i < results) {
      outputs.push_back(data);
    } else {
      ids.push_back(*static_cast<const Tickets::Id*>(data));
    }
  }
  for (int64_t i = 0; i < results; ++i) {
    auto result = rets.get<ffi::AnyBuffer>(static_cast<size_t>(i));
    if (!result.has_value()) return Malformed();
    if (result.value()->untyped_data() != outputs[static_cast<size_t>(i)]) {
      outputs.clear();  // Finish says what that means.
      break;
    }
  }
  auto token = rets.get<ffi::AnyBuffer>(static_cast<size_t>(results));
  if (!token.has_value()) return Malformed();
  *static_cast<int64_t*>(token.value()->untyped_data()) = 0;
  return ToError(ProcessTickets().Finish(ids, outputs));
}

XLA_FFI_DEFINE_HANDLER(kBegin, Begin, ffi::Ffi::Bind().Ret<ffi::BufferR0<ffi::S64>>());

XLA_FFI_DEFINE_HANDLER(
    kStart, Start,
    ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<std::string_view>("request").Attr<bool>(
        "anonymous"));

XLA_FFI_DEFINE_HANDLER(
    kDone, Done,
    ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<int64_t>("results").Attr<int64_t>(
        "tickets"));

XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kBeginCall, "Host", kBegin);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kStartCall, "Host", kStart);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kDoneCall, "Host", kDone);

}  // namespace
}  // namespace tfhvd
