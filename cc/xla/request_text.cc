#include "cc/xla/request_text.h"

#include <utility>

#include "cc/flow/codec.h"
#include "cc/flow/messages.h"

namespace tfhvd {
namespace {

constexpr char kDigits[] = "0123456789abcdef";
constexpr char kSeparator = '.';

int ValueOf(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

std::string ToHex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Status FromHex(std::string_view text, std::string* bytes) {
  bytes->reserve(text.size() / 2);
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    const int high = ValueOf(text[i]);
    const int low = ValueOf(text[i + 1]);
    if (high < 0 || low < 0) return Status::Internal("a compiled function's request is not hex");
    *bytes += static_cast<char>(high * 16 + low);
  }
  return Status::Ok();
}

}  // namespace

std::string ToText(const Request& request) {
  Announcement announcement;
  announcement.requests.push_back(request);
  return ToHex(Encode(announcement)) + kSeparator + ToHex(request.origin);
}

Status FromText(std::string_view text, Request* request) {
  const size_t end = text.find(kSeparator);
  if (end == std::string_view::npos) {
    return Status::Internal("a compiled function's request does not say where it comes from");
  }
  std::string bytes, origin;
  TFHVD_RETURN_IF_ERROR(FromHex(text.substr(0, end), &bytes));
  TFHVD_RETURN_IF_ERROR(FromHex(text.substr(end + 1), &origin));
  Announcement announcement;
  TFHVD_RETURN_IF_ERROR(Decode(bytes, &announcement));
  if (announcement.requests.size() != 1) {
    return Status::Internal("a call in a compiled function does not contain exactly one request");
  }
  *request = std::move(announcement.requests[0]);
  request->origin = std::move(origin);
  return Status::Ok();
}

}  // namespace tfhvd
