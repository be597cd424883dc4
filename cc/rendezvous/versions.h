// Versions: what every rank of a job must have alike, and what is said where they do not.
#pragma once

#include <string>
#include <vector>

#include "cc/base/status.h"

namespace tfhvd {

struct Versions {
  std::string tfhvd;       // "": unknown, as of a tfhvd that does not tell
  std::string tensorflow;  // the part that matters, as "2.21"; "": unknown, or none installed
};

// Whether the ranks can work together: one version of tfhvd, with one protocol, and of TensorFlow.
// kFailedPrecondition names each version with its ranks and their hosts. An unknown TensorFlow fits
// any other. All arguments are by rank.
Status CheckVersions(const std::vector<int>& protocols, const std::vector<Versions>& versions,
                     const std::vector<std::string>& hosts);

}  // namespace tfhvd
