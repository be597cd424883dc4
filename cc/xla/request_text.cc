#include "cc/xla/request_text.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

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

// Splits the text at the separators.
Status Split(std::string_view text, std::vector<std::string>* parts) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(kSeparator, begin), text.size());
    TFHVD_RETURN_IF_ERROR(FromHex(text.substr(begin, end - begin), &parts->emplace_back()));
    begin = end + 1;
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
  std::vector<std::string> parts;  // the request, and its origin
  TFHVD_RETURN_IF_ERROR(Split(text, &parts));
  if (parts.size() != 2) {
    return Status::Internal("a compiled function's request does not say where it comes from");
  }
  Announcement announcement;
  TFHVD_RETURN_IF_ERROR(Decode(parts[0], &announcement));
  if (announcement.requests.size() != 1) {
    return Status::Internal("a call in a compiled function does not contain exactly one request");
  }
  *request = std::move(announcement.requests[0]);
  request->origin = std::move(parts[1]);
  return Status::Ok();
}

std::string ToText(const SharedGradients& gradients) {
  std::string text = ToHex(gradients.left_out ? "1" : "0") + kSeparator;
  text += ToHex(std::to_string(gradients.process_set)) + kSeparator + ToHex(gradients.reductions);
  for (const std::string& label : gradients.labels) text += kSeparator + ToHex(label);
  return text;
}

Status FromText(std::string_view text, SharedGradients* gradients) {
  std::vector<std::string> parts;
  TFHVD_RETURN_IF_ERROR(Split(text, &parts));
  if (parts.size() < 3) {
    return Status::Internal("a compiled function does not say whose gradients it has");
  }
  gradients->left_out = parts[0] == "1";
  gradients->process_set = std::atoi(parts[1].c_str());
  gradients->reductions = std::move(parts[2]);
  gradients->labels.assign(std::make_move_iterator(parts.begin() + 3),
                           std::make_move_iterator(parts.end()));
  return Status::Ok();
}

}  // namespace tfhvd
