#include "cc/process/handshake.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>

namespace tfhvd {
namespace {

// Counts up whenever messages of the negotiation or algorithms of a backend change.
constexpr int kProtocol = 8;

std::string HostName() {
  char name[256] = {0};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

// Empty where it is not known.
std::string PidNamespace() {
  char target[64];
  const ssize_t length = readlink("/proc/self/ns/pid", target, sizeof target);
  return length > 0 ? std::string(target, static_cast<size_t>(length)) : "";
}

bool CanSee(const Handshake& mine, const Handshake& other) {
  return mine.machine == other.machine && !mine.pid_namespace.empty() &&
         mine.pid_namespace == other.pid_namespace;
}

}  // namespace

std::string EncodeHandshake(const Handshake& hello) {
  char density[32];
  std::snprintf(density, sizeof density, "%.17g", hello.sparse_density);  // to the bit
  return std::to_string(hello.protocol) + "\n" + hello.host + "\n" + hello.machine + "\n" +
         std::to_string(hello.fusion_threshold) + "\n" +
         std::to_string(static_cast<int>(hello.cpu_operations)) + "\n" + density + "\n" +
         std::to_string(hello.local_process) + "\n" + std::to_string(hello.pid) + "\n" +
         hello.pid_namespace + "\n";
}

Status DecodeHandshake(const std::string& text, Handshake* hello) {
  std::istringstream in(text);
  std::string protocol;
  std::string threshold;
  std::string operations;
  std::string density;
  std::string local_process;
  std::string pid;
  if (!std::getline(in, protocol) || !std::getline(in, hello->host) ||
      !std::getline(in, hello->machine) || !std::getline(in, threshold) ||
      !std::getline(in, operations) || !std::getline(in, density) ||
      !std::getline(in, local_process) || !std::getline(in, pid) ||
      !std::getline(in, hello->pid_namespace)) {
    return Status::Internal("a rank introduced itself in a way that is not understood: '" + text +
                            "'");
  }
  hello->protocol = std::atoi(protocol.c_str());
  hello->fusion_threshold = std::atoll(threshold.c_str());
  hello->cpu_operations = static_cast<CpuOperations>(std::atoi(operations.c_str()));
  hello->sparse_density = std::strtod(density.c_str(), nullptr);
  hello->local_process = std::atoi(local_process.c_str());
  hello->pid = std::atoi(pid.c_str());
  return Status::Ok();
}

Handshake MakeHandshake(const Config& config) {
  Handshake hello;
  hello.protocol = kProtocol;
  hello.host = config.test_host.empty() ? HostName() : config.test_host;
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  hello.machine = hello.host + " " + boot;
  hello.fusion_threshold = config.fusion_threshold;
  hello.cpu_operations = config.cpu_operations;
  hello.sparse_density = config.sparse_density;
  hello.local_process = ReadLaunchHints().local_process;
  hello.pid = static_cast<int>(getpid());
  hello.pid_namespace = PidNamespace();
  return hello;
}

Status ExchangeHandshakes(Communicator* communicator, Config* config, Topology* topology) {
  const int size = communicator->size();
  const Handshake own = MakeHandshake(*config);
  const std::string mine = EncodeHandshake(own);

  // First the lengths, then the texts.
  const int64_t length = static_cast<int64_t>(mine.size());
  std::vector<int64_t> lengths(size);
  TFHVD_RETURN_IF_ERROR(
      communicator->AllGather(&length, lengths.data(), std::vector<int64_t>(size, sizeof length)));
  std::string all(static_cast<size_t>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})),
                  '\0');
  TFHVD_RETURN_IF_ERROR(communicator->AllGather(mine.data(), all.data(), lengths));

  std::vector<std::string> hosts;
  std::vector<std::string> machines;
  std::vector<int> local_processes;
  std::vector<int> pids;
  size_t at = 0;
  for (int r = 0; r < size; ++r) {
    Handshake hello;
    TFHVD_RETURN_IF_ERROR(DecodeHandshake(all.substr(at, static_cast<size_t>(lengths[r])), &hello));
    at += static_cast<size_t>(lengths[r]);
    if (hello.protocol != kProtocol) {
      return Status::FailedPrecondition(
          "the ranks run different versions of tfhvd. Received: protocol " +
          std::to_string(hello.protocol) + " from rank " + std::to_string(r) + " (host " +
          hello.host + "). Expected: " + std::to_string(kProtocol) +
          ". Install the same version on every host (python -m pip show tfhvd).");
    }
    if (r == 0) {
      config->fusion_threshold = hello.fusion_threshold;
      config->cpu_operations = hello.cpu_operations;
      config->sparse_density = hello.sparse_density;
    }
    hosts.push_back(hello.host);
    machines.push_back(hello.machine);
    local_processes.push_back(hello.local_process);
    pids.push_back(CanSee(own, hello) ? hello.pid : 0);
  }
  *topology = MakeTopology(communicator->rank(), std::move(machines));
  topology->hosts = std::move(hosts);
  topology->local_processes = std::move(local_processes);
  topology->pids = std::move(pids);
  return Status::Ok();
}

}  // namespace tfhvd
