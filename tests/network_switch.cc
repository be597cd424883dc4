// A switch for hosts that are network namespaces, with links of a given speed and length: where the
// kernel cannot delay packets itself (tests/network.py).
//
//   network_switch MICROSECONDS BYTES NAMESPACE:MEGABITS:MEGABITS ...
//
// Makes the device net0 in each namespace. A packet to 10.77.0.N goes to the N-th: it waits for the
// sender's link and the receiver's, each of so many megabits a second (what its host sends, and
// what it receives), and takes so many microseconds. What would wait for the receiver's link longer
// than kMostWaiting is lost, as in a switch, and so is a packet of more than so many bytes. Prints
// a line when the devices are there; goes on until it is killed.
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

constexpr int kPacketBytes = 9100;
constexpr int64_t kMostWaiting = 100'000'000;  // nanoseconds
constexpr int64_t kReadAhead = 2'000'000;  // nanoseconds of a link; the rest waits at the sender

struct Packet {
  int64_t due;
  std::vector<char> bytes;
};

struct Host {
  int device = -1;
  double send_ns_per_byte = 0.0;
  double receive_ns_per_byte = 0.0;
  int64_t sends_until = 0;  // when its link is free again, each way
  int64_t receives_until = 0;
  std::deque<Packet> arriving;
};

int64_t Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec;
}

[[noreturn]] void Fail(const std::string& what) {
  std::perror(what.c_str());
  std::exit(1);
}

int OpenDevice(const std::string& name) {
  const std::string path = "/run/netns/" + name;
  const int space = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (space < 0 || setns(space, CLONE_NEWNET) != 0) Fail(path);
  close(space);
  const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ifreq request = {};
  std::strcpy(request.ifr_name, "net0");
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (device < 0 || ioctl(device, TUNSETIFF, &request) != 0) Fail("/dev/net/tun");
  return device;
}

int64_t TimeOf(ssize_t bytes, double ns_per_byte) {
  return static_cast<int64_t>(ns_per_byte * static_cast<double>(bytes));
}

// Reads NAMESPACE:MEGABITS:MEGABITS.
Host OpenHost(const std::string& word) {
  const size_t second = word.rfind(':');
  const size_t first = word.rfind(':', second - 1);
  Host host;
  host.send_ns_per_byte = 8e3 / std::atof(word.c_str() + first + 1);
  host.receive_ns_per_byte = 8e3 / std::atof(word.c_str() + second + 1);
  host.device = OpenDevice(word.substr(0, first));
  return host;
}

// Takes what a host sends, as far as its link is free.
void Take(std::vector<Host>* hosts, Host* from, int64_t delay, int64_t largest) {
  char packet[kPacketBytes];
  while (from->sends_until < Now() + kReadAhead) {
    const ssize_t bytes = read(from->device, packet, sizeof packet);
    if (bytes <= 0) return;
    const size_t to = static_cast<unsigned char>(packet[19]) - size_t{1};  // of the address
    if (bytes < 20 || (packet[0] & 0xf0) != 0x40 || to >= hosts->size()) continue;
    const int64_t takes = TimeOf(bytes, from->send_ns_per_byte);
    from->sends_until = std::max(from->sends_until, Now()) + takes;
    Host& receiver = (*hosts)[to];
    const int64_t begins = std::max(receiver.receives_until, from->sends_until - takes);
    if (begins - from->sends_until > kMostWaiting || bytes > largest) continue;
    receiver.receives_until =
        std::max(begins + TimeOf(bytes, receiver.receive_ns_per_byte), from->sends_until);
    receiver.arriving.push_back({receiver.receives_until + delay, {packet, packet + bytes}});
  }
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) return 2;
  const int64_t delay = static_cast<int64_t>(1e3 * std::atof(words[1]));
  const int64_t largest = std::atoll(words[2]);
  std::vector<Host> hosts;
  for (int i = 3; i < count; ++i) hosts.push_back(OpenHost(words[i]));
  prctl(PR_SET_TIMERSLACK, 1000);
  std::puts("ready");
  std::fflush(stdout);
  std::vector<pollfd> polled(hosts.size());
  for (;;) {
    int64_t next = Now() + 1'000'000'000;
    for (size_t i = 0; i < hosts.size(); ++i) {
      Host& host = hosts[i];
      while (!host.arriving.empty() && host.arriving.front().due <= Now()) {
        const std::vector<char>& bytes = host.arriving.front().bytes;
        (void)!write(host.device, bytes.data(), bytes.size());
        host.arriving.pop_front();
      }
      if (!host.arriving.empty()) next = std::min(next, host.arriving.front().due);
      const bool full = host.sends_until > Now() + kReadAhead;
      if (full) next = std::min(next, host.sends_until - kReadAhead);
      polled[i] = {host.device, static_cast<short>(full ? 0 : POLLIN), 0};
    }
    const int64_t wait = std::max<int64_t>(0, next - Now());
    const timespec timeout = {wait / 1'000'000'000, wait % 1'000'000'000};
    if (ppoll(polled.data(), polled.size(), &timeout, nullptr) <= 0) continue;
    for (size_t i = 0; i < hosts.size(); ++i) {
      if ((polled[i].revents & POLLIN) != 0) Take(&hosts, &hosts[i], delay, largest);
    }
  }
}
