// Codec: the wire format of the negotiation's messages; see cc/docs/wire-format.md.
//
// Decode accepts any bytes: bytes that are no complete valid message give an error, never a crash
// or a large allocation.
#pragma once

#include <string>

#include "cc/base/status.h"
#include "cc/flow/messages.h"

namespace tfhvd {

std::string Encode(const Announcement& announcement);
std::string Encode(const Agreement& agreement);
std::string Encode(const Alarm& alarm);

Status Decode(const std::string& bytes, Announcement* announcement);
Status Decode(const std::string& bytes, Agreement* agreement);
Status Decode(const std::string& bytes, Alarm* alarm);

}  // namespace tfhvd
