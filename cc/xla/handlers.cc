// Handlers: the calls of calls.h, as XLA's runtime calls them. This file uses only XLA's interface
// for foreign functions, which consists of headers and needs no linking.
#include <algorithm>
#include <cstdint>
#include <memory>
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
    case StatusCode::kDataLoss:  // for programs, a rank has failed
      return ffi::Error(ffi::ErrorCode::kAborted, status.message());
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

// Where a compiled function runs, and how its numbers are read and written there.
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
  // Returns false if XLA has moved the number, or it was never written.
  bool ReadNumber(const void* at, int64_t* number) const {
    return Read(on_gpu_ ? ProcessPendingCollectives().Kept(at) : InPlace(at), number);
  }
  // Reads a number for the last time.
  bool TakeNumber(const void* at, int64_t* number) const {
    return Read(on_gpu_ ? ProcessPendingCollectives().TakeKept(at) : InPlace(at), number);
  }

 private:
  static std::optional<int64_t> InPlace(const void* at) { return *static_cast<const int64_t*>(at); }
  static bool Read(const std::optional<int64_t>& found, int64_t* number) {
    *number = found.value_or(0);
    return found.has_value();
  }

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
    if (!memory.TakeNumber(data, &id)) return Malformed();
    ids.push_back(id);
  }
  for (int64_t i = 0; i < results; ++i) {
    auto result = rets.get<ffi::AnyBuffer>(static_cast<size_t>(i));
    if (!result.has_value()) return Malformed();
    if (result.value()->untyped_data() != outputs[static_cast<size_t>(i)]) {
      outputs.clear();  // Finish reports the reason
      break;
    }
  }
  auto token = rets.get<ffi::AnyBuffer>(static_cast<size_t>(results));
  if (!token.has_value()) return Malformed();
  memory.Write(token.value()->untyped_data(), 0);
  return ToError(ProcessPendingCollectives().Finish(ids, outputs, memory.stream()));
}

ffi::Error Find(ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::Span<const int64_t> numbers,
                ffi::Span<const int64_t> dtypes, int64_t most) {
  void* before = nullptr;
  if (args.size() != numbers.size() + 1 || dtypes.size() != numbers.size() ||
      !Read(args, 0, &before)) {
    return Malformed();
  }
  auto result = rets.get<ffi::BufferR1<ffi::S64>>(0);
  auto vote = rets.get<ffi::BufferR1<ffi::F32>>(1);
  if (!result.has_value() || result.value()->element_count() != kFoundValues || !vote.has_value() ||
      vote.value()->element_count() != kVoteValues) {
    return Malformed();
  }
  FoundNotFinite found = ToFound(static_cast<const int64_t*>(before));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const ffi::ErrorOr<ffi::AnyBuffer> gradient = args.get<ffi::AnyBuffer>(i + 1);
    if (!gradient.has_value()) return Malformed();
    Look(gradient.value().untyped_data(), static_cast<DType>(dtypes.begin()[i]),
         static_cast<int64_t>(gradient.value().element_count()), most, numbers.begin()[i], &found);
  }
  ToValues(found, result.value()->typed_data());
  const std::shared_ptr<Engine> engine = ProcessEngine();
  const Votes own = VoteOf(found, engine == nullptr ? 0 : engine->topology().rank);
  std::copy(own.begin(), own.end(), vote.value()->typed_data());
  return ffi::Error::Success();
}

ffi::Error Note(ffi::BufferR1<ffi::S64> found, ffi::BufferR1<ffi::F32> votes, Number result,
                std::string_view text) {
  *result->typed_data() = 0;
  SharedGradients gradients;
  const Status read = FromText(text, &gradients);
  if (!read.ok()) return ToError(read);
  if (found.element_count() != kFoundValues || votes.element_count() != kVoteValues) {
    return Malformed();
  }
  Votes together;
  std::copy_n(votes.typed_data(), kVoteValues, together.begin());
  const std::shared_ptr<Engine> engine = ProcessEngine();
  if (engine == nullptr) return ffi::Error::Success();  // shut down meanwhile
  return ToError(
      engine->telemetry().NoteGradients(gradients, ToFound(found.typed_data()), together));
}

// On the host; then the same on a GPU, where XLA passes its stream.

ffi::Error BeginHere(Number run) { return Begin(Memory(), run); }
ffi::Error StartHere(ffi::RemainingArgs args, ffi::RemainingRets rets, std::string_view request,
                     bool anonymous) {
  return Start(Memory(), args, rets, request, anonymous);
}
ffi::Error DoneHere(ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t results,
                    int64_t pending) {
  return Done(Memory(), args, rets, results, pending);
}

ffi::Error NoteNothing(ffi::BufferR1<ffi::S64>, ffi::BufferR1<ffi::F32>, Number, std::string_view) {
  return ffi::Error::Success();
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

XLA_FFI_DEFINE_HANDLER(kFind, Find,
                       ffi::Ffi::Bind()
                           .RemainingArgs()
                           .RemainingRets()
                           .Attr<ffi::Span<const int64_t>>("numbers")
                           .Attr<ffi::Span<const int64_t>>("dtypes")
                           .Attr<int64_t>("most"));
XLA_FFI_DEFINE_HANDLER(kNote, Note,
                       ffi::Ffi::Bind()
                           .Arg<ffi::BufferR1<ffi::S64>>()
                           .Arg<ffi::BufferR1<ffi::F32>>()
                           .Ret<ffi::BufferR0<ffi::S64>>()
                           .Attr<std::string_view>("gradients"));
XLA_FFI_DEFINE_HANDLER(kNoteOnGpu, NoteNothing,
                       ffi::Ffi::Bind()
                           .Arg<ffi::BufferR1<ffi::S64>>()
                           .Arg<ffi::BufferR1<ffi::F32>>()
                           .Ret<ffi::BufferR0<ffi::S64>>()
                           .Attr<std::string_view>("gradients"));

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
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kFindCall, "Host", kFind);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kNoteCall, "Host", kNote);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kNoteCall, "CUDA", kNoteOnGpu);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kBeginCall, "CUDA", kBeginOnGpu);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kStartCall, "CUDA", kStartOnGpu);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kDoneCall, "CUDA", kDoneOnGpu);

}  // namespace
}  // namespace tfhvd
