// The calls of calls.h, as XLA's runtime calls them. Of XLA this sees its interface for foreign
// functions alone, which consists of headers without anything to link.
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/process/pending_collectives.h"
#include "cc/process/process.h"
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

// Where a compiled function runs, and how its numbers are written and read there.
class Memory {
 public:
  Memory() = default;
  explicit Memory(void* stream) : on_gpu_(true), stream_(stream) {}

  DeviceKind device() const { return on_gpu_ ? DeviceKind::kGpu : DeviceKind::kHost; }
  void* stream() const { return stream_; }

  void Write(void* at, int64_t number) const {
    if (on_gpu_) {
      ProcessPendingCollectives().Keep(at, number);
    } else {
      *static_cast<int64_t*>(at) = number;
    }
  }
  // False: XLA has moved it, or nobody wrote it.
  bool ReadNumber(const void* at, int64_t* number) const {
    const std::optional<int64_t> kept =
        on_gpu_ ? ProcessPendingCollectives().Kept(at) : *static_cast<const int64_t*>(at);
    *number = kept.value_or(0);
    return kept.has_value();
  }

 private:
  bool on_gpu_ = false;
  void* stream_ = nullptr;
};

using Number = ffi::Result<ffi::BufferR0<ffi::S64>>;

ffi::Error Begin(const Memory& memory, Number run) {
  memory.Write(run->untyped_data(), ProcessPendingCollectives().Begin());
  return ffi::Error::Success();
}

ffi::Error Start(const Memory& memory, ffi::RemainingArgs args, ffi::RemainingRets rets,
                 std::string_view request, bool anonymous) {
  Entry entry;
  entry.anonymous = anonymous;
  const Status read = FromText(request, entry.request.Edit());
  if (!read.ok()) return ToError(read);
  entry.request.Edit()->device = memory.device();
  entry.EditExtras()->stream = memory.stream();
  const size_t count = entry.request->tensors.size();
  if (args.size() < count + 1 || rets.size() != count + 1) return Malformed();
  std::vector<PendingCollectives::Result> results(count);
  for (size_t i = 0; i < count; ++i) {
    void* input = nullptr;
    auto result = rets.get<ffi::AnyBuffer>(i);
    if (!Read(args, i, &input) || !result.has_value()) return Malformed();
    entry.inputs.push_back(input);
    const auto dimensions = result.value()->dimensions();
    results[i].data = result.value()->untyped_data();
    results[i].shape.assign(dimensions.begin(), dimensions.end());
  }
  void* at = nullptr;
  PendingCollectives::Run run = 0;
  auto pending = rets.get<ffi::AnyBuffer>(count);
  if (!Read(args, count, &at) || !pending.has_value()) return Malformed();
  if (!memory.ReadNumber(at, &run)) return Malformed();
  memory.Write(pending.value()->untyped_data(),
               ProcessPendingCollectives().Start(run, ProcessEngine(), std::move(entry),
                                                 std::move(results)));
  return ffi::Error::Success();
}

ffi::Error Done(const Memory& memory, ffi::RemainingArgs args, ffi::RemainingRets rets,
                int64_t results, int64_t pending) {
  std::vector<void*> outputs;
  std::vector<PendingCollectives::Id> ids;
  for (int64_t i = 0; i < results + pending; ++i) {
    void* data = nullptr;
    if (!Read(args, static_cast<size_t>(i), &data)) return Malformed();
    if (i < results) {
      outputs.push_back(data);
      continue;
    }
    PendingCollectives::Id id = 0;
    if (!memory.ReadNumber(data, &id)) return Malformed();
    ids.push_back(id);
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
  memory.Write(token.value()->untyped_data(), 0);
  return ToError(ProcessPendingCollectives().Finish(ids, outputs, memory.stream()));
}

// On the host, then the same on a GPU, where XLA tells its stream.

ffi::Error BeginHere(Number run) { return Begin(Memory(), run); }
ffi::Error StartHere(ffi::RemainingArgs args, ffi::RemainingRets rets, std::string_view request,
                     bool anonymous) {
  return Start(Memory(), args, rets, request, anonymous);
}
ffi::Error DoneHere(ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t results,
                    int64_t pending) {
  return Done(Memory(), args, rets, results, pending);
}

ffi::Error BeginOnGpu(void* stream, Number run) { return Begin(Memory(stream), run); }
ffi::Error StartOnGpu(void* stream, ffi::RemainingArgs args, ffi::RemainingRets rets,
                      std::string_view request, bool anonymous) {
  return Start(Memory(stream), args, rets, request, anonymous);
}
ffi::Error DoneOnGpu(void* stream, ffi::RemainingArgs args, ffi::RemainingRets rets,
                     int64_t results, int64_t pending) {
  return Done(Memory(stream), args, rets, results, pending);
}

using Stream = ffi::PlatformStream<void*>;

XLA_FFI_DEFINE_HANDLER(kBegin, BeginHere, ffi::Ffi::Bind().Ret<ffi::BufferR0<ffi::S64>>());
XLA_FFI_DEFINE_HANDLER(
    kStart, StartHere,
    ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<std::string_view>("request").Attr<bool>(
        "anonymous"));
XLA_FFI_DEFINE_HANDLER(
    kDone, DoneHere,
    ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<int64_t>("results").Attr<int64_t>(
        "pending"));

XLA_FFI_DEFINE_HANDLER(kBeginOnGpu, BeginOnGpu,
                       ffi::Ffi::Bind().Ctx<Stream>().Ret<ffi::BufferR0<ffi::S64>>());
XLA_FFI_DEFINE_HANDLER(kStartOnGpu, StartOnGpu,
                       ffi::Ffi::Bind()
                           .Ctx<Stream>()
                           .RemainingArgs()
                           .RemainingRets()
                           .Attr<std::string_view>("request")
                           .Attr<bool>("anonymous"));
XLA_FFI_DEFINE_HANDLER(kDoneOnGpu, DoneOnGpu,
                       ffi::Ffi::Bind()
                           .Ctx<Stream>()
                           .RemainingArgs()
                           .RemainingRets()
                           .Attr<int64_t>("results")
                           .Attr<int64_t>("pending"));

XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kBeginCall, "Host", kBegin);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kStartCall, "Host", kStart);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kDoneCall, "Host", kDone);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kBeginCall, "CUDA", kBeginOnGpu);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kStartCall, "CUDA", kStartOnGpu);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kDoneCall, "CUDA", kDoneOnGpu);

}  // namespace
}  // namespace tfhvd
