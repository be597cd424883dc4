#include "cc/rendezvous/versions.h"

#include <algorithm>
#include <utility>

namespace tfhvd {
namespace {

struct Group {
  std::string version;
  std::vector<int> ranks;
};

// Groups the ranks by version, the group of the lowest rank first; leaves out ranks without a
// version.
std::vector<Group> GroupRanks(const std::vector<std::string>& versions) {
  std::vector<Group> groups;
  for (size_t r = 0; r < versions.size(); ++r) {
    if (versions[r].empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& g) { return g.version == versions[r]; });
    if (group == groups.end()) group = groups.insert(groups.end(), {versions[r], {}});
    group->ranks.push_back(static_cast<int>(r));
  }
  return groups;
}

// Returns "rank 3", or "ranks 0-3, 6".
std::string RanksText(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last;
  }
  return text;
}

// Returns "host a", or "hosts a, b", with as many names as fit on a line.
std::string HostsText(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  constexpr size_t kMostNamed = 4;
  std::vector<std::string> names;
  for (const int r : ranks) {
    const std::string& host = hosts[static_cast<size_t>(r)];
    if (std::find(names.begin(), names.end(), host) == names.end()) names.push_back(host);
  }
  std::string text = names.size() == 1 ? "host " : "hosts ";
  for (size_t i = 0; i < names.size() && i < kMostNamed; ++i)
    text += (i > 0 ? ", " : "") + names[i];
  return names.size() > kMostNamed ? text + ", ..." : text;
}

std::string Compared(const std::vector<Group>& groups, const std::vector<std::string>& hosts) {
  std::string text;
  for (const Group& group : groups) {
    text += (text.empty() ? "" : "; ") + group.version + " on " + RanksText(group.ranks) + " (" +
            HostsText(group.ranks, hosts) + ")";
  }
  return text;
}

Status Mixed(const std::string& what, const std::vector<Group>& groups,
             const std::vector<std::string>& hosts) {
  return Status::FailedPrecondition("the ranks run different versions of " + what + ": " +
                                    Compared(groups, hosts) +
                                    ". Install the same version on every host; tfhvd doctor, with "
                                    "the -np and -H of this job, compares all that they have.");
}

}  // namespace

Status CheckVersions(const std::vector<int>& protocols, const std::vector<Versions>& versions,
                     const std::vector<std::string>& hosts) {
  std::vector<std::string> tfhvd;
  std::vector<std::string> tensorflow;
  for (const Versions& each : versions) {
    tfhvd.push_back(each.tfhvd.empty() ? "unknown" : each.tfhvd);
    tensorflow.push_back(each.tensorflow);
  }
  const auto other = [&](int protocol) { return protocol != protocols[0]; };
  if (std::any_of(protocols.begin(), protocols.end(), other)) {
    for (size_t r = 0; r < tfhvd.size(); ++r) {
      tfhvd[r] += " (protocol " + std::to_string(protocols[r]) + ")";
    }
  }
  const std::vector<Group> of_tfhvd = GroupRanks(tfhvd);
  if (of_tfhvd.size() > 1) return Mixed("tfhvd", of_tfhvd, hosts);
  const std::vector<Group> of_tensorflow = GroupRanks(tensorflow);
  if (of_tensorflow.size() > 1) return Mixed("TensorFlow", of_tensorflow, hosts);
  return Status::Ok();
}

}  // namespace tfhvd
