// Status: how every function of the core reports a failure. No exceptions cross a header of cc/.
//
// The code says who must act (see cc/docs/errors.md):
//
// - kInvalidArgument: a user's mistake; the entry fails on every rank, the job continues
// - kFailedPrecondition: called at the wrong time (before init, after shutdown)
// - kAborted: a peer has failed or left; all pending entries fail
// - kDataLoss: the only rank with the data of a collective has failed; it fails on every rank, the
//   job continues
// - kCancelled: the framework took the entry back
// - kUnavailable: this machine lacks something (a library, a device, memory to share)
// - kInternal: a bug of tfhvd, or a failure of a vendor's library
#pragma once

#include <string>
#include <utility>

namespace tfhvd {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument = 1,
  kFailedPrecondition = 2,
  kAborted = 3,
  kCancelled = 4,
  kUnavailable = 5,
  kInternal = 6,
  kDataLoss = 7,
};

constexpr int kStatusCodes = 8;

const char* StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return Status(); }
  static Status InvalidArgument(std::string m) {
    return {StatusCode::kInvalidArgument, std::move(m)};
  }
  static Status FailedPrecondition(std::string m) {
    return {StatusCode::kFailedPrecondition, std::move(m)};
  }
  static Status Aborted(std::string m) { return {StatusCode::kAborted, std::move(m)}; }
  static Status Cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
  static Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
  static Status DataLoss(std::string m) { return {StatusCode::kDataLoss, std::move(m)}; }
  static Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }

  // Marks a failure on which the ranks agree: the same collective fails with it on each of them.
  Status ByAgreement() && {
    by_agreement_ = true;
    return std::move(*this);
  }
  bool by_agreement() const { return by_agreement_; }

  const std::string& message() const { return message_; }
  std::string ToString() const;

  // Compares code and message, not by_agreement.
  bool operator==(const Status& o) const { return code_ == o.code_ && message_ == o.message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  bool by_agreement_ = false;
  std::string message_;
};

// Ends the process and prints both values: only for bugs of tfhvd itself.
[[noreturn]] void CheckFailed(const char* file, int line, const std::string& what);

}  // namespace tfhvd

#define TFHVD_RETURN_IF_ERROR(expr)                \
  do {                                             \
    ::tfhvd::Status tfhvd_status_ = (expr);        \
    if (!tfhvd_status_.ok()) return tfhvd_status_; \
  } while (false)

#define TFHVD_CHECK_EQ(a, b)                                                           \
  do {                                                                                 \
    const auto tfhvd_a_ = (a);                                                         \
    const auto tfhvd_b_ = (b);                                                         \
    if (!(tfhvd_a_ == tfhvd_b_)) {                                                     \
      ::tfhvd::CheckFailed(__FILE__, __LINE__,                                         \
                           std::string(#a " == " #b ": ") + std::to_string(tfhvd_a_) + \
                               " against " + std::to_string(tfhvd_b_));                \
    }                                                                                  \
  } while (false)
