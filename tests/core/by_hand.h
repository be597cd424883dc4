// Announcements made and agreements read by hand, for tests of the coordinator.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cc/negotiate/coordinator.h"

namespace tfhvd {

using Sent = std::vector<std::pair<int, SharedAgreement>>;

inline Request Ask(const std::string& name, int64_t length = 4) {
  Request q;
  q.key.name = name;
  q.tensors.push_back({DType::kFloat32, {length}});
  return q;
}
inline Key KeyOf(const std::string& name) { return {0, name}; }

inline Announcement InFull(const std::string& name, int64_t length = 4, uint64_t seen = 0) {
  Announcement a;
  a.seen = seen;
  a.requests.push_back(Ask(name, length));
  return a;
}
inline Announcement ById(CacheId id, uint64_t seen = 0) {
  Announcement a;
  a.seen = seen;
  a.known.push_back(id);
  return a;
}
inline Announcement Withdraw(const std::string& name, uint64_t seen = 0) {
  Announcement a;
  a.seen = seen;
  a.withdrawn.push_back(KeyOf(name));
  return a;
}
inline Announcement Seen(uint64_t seen) {
  Announcement a;
  a.seen = seen;
  return a;
}
inline Announcement Leave(const std::string& reason = "") {
  Announcement a;
  a.leaving = true;
  a.leave_reason = reason;
  return a;
}

inline Coordinator::Options OptionsOf(int size, int64_t capacity = 1024) {
  Coordinator::Options options;
  options.cache_capacity = capacity;
  for (int r = 0; r < size; ++r) options.hosts.push_back("host" + std::to_string(r));
  return options;
}

// What was sent to one rank in one step, or an empty agreement.
inline Agreement To(const Sent& sent, int rank) {
  for (const auto& [to, agreement] : sent) {
    if (to == rank) return *agreement;
  }
  return Agreement();
}

// Names of what was agreed; failures with "!", repeats as "#id".
inline std::string Items(const Agreement& a) {
  std::string s;
  for (const Agreement::Item& item : a.items) {
    if (!s.empty()) s += " ";
    s += item.repeat ? "#" + std::to_string(item.id) : item.decision.key.name;
    if (!item.decision.verdict.ok()) s += "!";
  }
  return s;
}

}  // namespace tfhvd
