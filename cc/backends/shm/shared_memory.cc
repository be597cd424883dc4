#include "cc/backends/shm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tfhvd {
namespace {

constexpr int64_t kNonceBytes = sizeof(SharedMemory::Handle::nonce);

// The file holds the memory, followed by the nonce.
int64_t FileBytes(int64_t bytes) { return bytes + kNonceBytes; }

// Returns the number of this process's PID namespace, 0 if it is unknown.
uint64_t PidNamespace() {
  struct stat about = {};
  return stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

Status NoMemory(int64_t bytes, int error) {
  return Status::Unavailable(
      "cannot get " + std::to_string(bytes) +
      " bytes of memory for the ranks of this host to share: " + std::strerror(error) +
      "; free some, or raise the limit of the container or of `ulimit -f`");
}

Status NotTheMemory(const SharedMemory::Handle& handle, const std::string& why) {
  return Status::Unavailable("cannot share memory with a peer: " + handle.path() + " is " + why +
                             "; the ranks may run in different containers");
}

bool IsFileOf(const SharedMemory::Handle& handle, int64_t bytes, const struct stat& about) {
  return S_ISREG(about.st_mode) && about.st_dev == handle.device && about.st_ino == handle.inode &&
         about.st_size == FileBytes(bytes);
}

}  // namespace

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(FileBytes(size_)));
}

void SharedMemory::Swap(SharedMemory* other) {
  std::swap(file_, other->file_);
  std::swap(data_, other->data_);
  std::swap(size_, other->size_);
}

void SharedMemory::Seal() { file_.Reset(); }

Status SharedMemory::Map(int64_t bytes) {
  void* p = mmap(nullptr, static_cast<size_t>(FileBytes(bytes)), PROT_READ | PROT_WRITE, MAP_SHARED,
                 file_.get(), 0);
  if (p == MAP_FAILED) {
    return Status::Unavailable("cannot map " + std::to_string(bytes) +
                               " bytes of shared memory: " + std::strerror(errno));
  }
  data_ = static_cast<char*>(p);
  size_ = bytes;
  return Status::Ok();
}

Status SharedMemory::Create(int64_t bytes, SharedMemory* out) {
  SharedMemory made;
  made.file_ = Fd(memfd_create("tfhvd", MFD_CLOEXEC));
  if (!made.file_.valid()) {
    return Status::Unavailable(std::string("cannot make shared memory: ") + std::strerror(errno));
  }
  if (ftruncate(made.file_.get(), FileBytes(bytes)) != 0) return NoMemory(bytes, errno);
  TFHVD_RETURN_IF_ERROR(made.Map(bytes));
  TFHVD_RETURN_IF_ERROR(made.Reserve({bytes, kNonceBytes}));
  char nonce[kNonceBytes];
  if (getrandom(nonce, sizeof nonce, 0) != static_cast<ssize_t>(sizeof nonce)) {
    return Status::Unavailable(std::string("cannot get random bytes to mark shared memory with: ") +
                               std::strerror(errno));
  }
  std::memcpy(made.nonce(), nonce, sizeof nonce);
  *out = std::move(made);
  return Status::Ok();
}

Status SharedMemory::Open(const Handle& handle, int64_t bytes, SharedMemory* out) {
  const uint64_t here = PidNamespace();
  if (here != handle.pid_namespace) {
    return NotTheMemory(handle, "of another PID namespace than this rank's");
  }
  // Examines the file before opening it, because opening a device may have effects.
  struct stat about = {};
  const std::string path = handle.path();
  const auto cannot_open = [&path] {
    return Status::Unavailable("cannot open a peer's shared memory (" + path +
                               "): " + std::strerror(errno));
  };
  if (stat(path.c_str(), &about) != 0) return cannot_open();
  if (!IsFileOf(handle, bytes, about)) return NotTheMemory(handle, "another file");
  SharedMemory opened;
  opened.file_ = Fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!opened.file_.valid()) return cannot_open();
  if (fstat(opened.file_.get(), &about) != 0 || !IsFileOf(handle, bytes, about)) {
    return NotTheMemory(handle, "another file by now");
  }
  TFHVD_RETURN_IF_ERROR(opened.Map(bytes));
  if (std::memcmp(opened.nonce(), handle.nonce, sizeof handle.nonce) != 0) {
    return NotTheMemory(handle, "another memory");
  }
  *out = std::move(opened);
  return Status::Ok();
}

Status SharedMemory::Reserve(const Part& part) {
  if (part.bytes == 0) return Status::Ok();
  const int error = posix_fallocate(file_.get(), part.begin, part.bytes);
  return error == 0 ? Status::Ok() : NoMemory(part.bytes, error);
}

SharedMemory::Handle SharedMemory::handle() const {
  Handle handle;
  struct stat about = {};
  if (fstat(file_.get(), &about) != 0) return handle;
  handle.pid = getpid();
  handle.file = file_.get();
  handle.pid_namespace = PidNamespace();
  handle.device = about.st_dev;
  handle.inode = about.st_ino;
  std::memcpy(handle.nonce, nonce(), sizeof handle.nonce);
  return handle;
}

std::string SharedMemory::Handle::path() const {
  return "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(file);
}

}  // namespace tfhvd
