// Versions: what all ranks of a job must have in common, and the error if they do not.
#pragma once

#include <string>
#include <vector>

#include "cc/base/status.h"

namespace tfhvd {

struct Versions {
  std::string tfhvd;       // "": unknown; older releases do not send it
  std::string tensorflow;  // major and minor, as "2.21"; "": unknown, or not installed
};

// Checks whether the ranks can work together: same version and protocol of tfhvd, same version of
// TensorFlow. kFailedPrecondition names each version with its ranks and their hosts. An unknown
// version of TensorFlow matches any other. All arguments are by rank.
Status CheckVersions(const std::vector<int>& protocols, const std::vector<Versions>& versions,
                     const std::vector<std::string>& hosts);

}  // namespace tfhvd
